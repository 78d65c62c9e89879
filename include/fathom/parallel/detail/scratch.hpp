// Memory that lives within one constant evaluation and costs it few steps; std::vector costs many.
#pragma once

namespace fathom::detail {

/// n values, zero or as their type begins.
template <class T> class scratch {
  public:
    constexpr explicit scratch(int n) : data_(new T[static_cast<unsigned>(n)]{}) {}
    scratch(const scratch&) = delete;
    scratch& operator=(const scratch&) = delete;
    constexpr ~scratch() { delete[] data_; }
    constexpr T* data() { return data_; }

  private:
    T* data_;
};

}  // namespace fathom::detail
