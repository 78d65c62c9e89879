// Memory as a simulated kernel sees it: places whose every use is watched.
#pragma once

#include <cstdint>
#include <fathom/core/bytes.hpp>
#include <fathom/device/block/pack.hpp>
#include <fathom/device/simulated/detail/machine.hpp>
#include <type_traits>

namespace fathom::simulated {

/// One number in watched memory: converts to its value and takes a new one.
template <class T> class watched {
  public:
    watched(detail::machine& m, T* at, const detail::origin& from, integer index)
        : machine_(&m), at_(at), from_(from), index_(index) {}
    watched(const watched&) = default;
    operator T() const { return read(); }  // NOLINT(google-explicit-constructor): a number in memory is a number
    template <class To>
    requires(!std::is_same_v<To, T> && std::is_constructible_v<To, T>) explicit operator To() const {
        return static_cast<To>(read());
    }
    const watched& operator=(T value) const {  // NOLINT: assigns to what it stands for
        machine_->touch(detail::machine::kind::write, at_, sizeof(T), from_, index_);
        *at_ = value;
        return *this;
    }
    const watched& operator=(const watched& other) const { return *this = static_cast<T>(other); }  // NOLINT
    watched& operator=(const watched& other) {
        *this = static_cast<T>(other);
        return *this;
    }
    const watched& operator+=(T value) const { return *this = static_cast<T>(read() + value); }

  private:
    T read() const {
        machine_->touch(detail::machine::kind::read, at_, sizeof(T), from_, index_);
        return *at_;
    }
    detail::machine* machine_;
    T* at_;
    detail::origin from_;
    integer index_;
};

/// A place in memory, with the bounds of the row or array that it belongs to. What kernels call `global` and `shared`.
template <class T> class view {
  public:
    view() = default;
    view(detail::machine& m, T* first, const detail::origin& from) : machine_(&m), first_(first), from_(from) {}
    /// A place to read is a place to read constants.
    operator view<const T>() const  // NOLINT(google-explicit-constructor)
        requires(!std::is_const_v<T>) {
        return machine_ == nullptr ? view<const T>{} : view<const T>{*machine_, first_, from_} + offset_;
    }

    decltype(auto) operator[](integer i) const {
        check(std::is_const_v<T> ? "reads" : "uses", i, 1);
        if constexpr (std::is_const_v<T>) {
            machine_->touch(detail::machine::kind::read, first_ + offset_ + i, sizeof(T), from_, offset_ + i);
            return static_cast<std::remove_const_t<T>>(first_[offset_ + i]);
        } else {
            return watched<T>{*machine_, first_ + offset_ + i, from_, offset_ + i};
        }
    }
    friend view operator+(view from, integer n) {
        from.offset_ += n;
        return from;
    }
    view& operator+=(integer n) {
        offset_ += n;
        return *this;
    }
    explicit operator bool() const { return first_ != nullptr; }

    /// What `block` is built on: the address of `numbers` numbers from here on, within bounds and aligned for one
    /// access.
    T* take(const char* does, int numbers) const {
        check(does, 0, numbers);
        machine_->check_aligned(does, first_ + offset_, static_cast<integer>(sizeof(T)) * numbers, from_, offset_);
        return first_ + offset_;
    }
    [[nodiscard]] bool aligned() const { return reinterpret_cast<std::uintptr_t>(first_ + offset_) % 16 == 0; }
    [[nodiscard]] const detail::origin& from() const { return from_; }
    [[nodiscard]] integer index() const { return offset_; }

  private:
    void check(const char* does, integer i, integer numbers) const {
        if (machine_ == nullptr) fail("a simulated kernel ", does, " memory that its launch did not give");
        machine_->check_bounds(does, offset_ + i, numbers, from_);
    }
    detail::machine* machine_ = nullptr;
    T* first_ = nullptr;
    integer offset_ = 0;
    detail::origin from_;
};

/// Rows of numbers in global memory; the gaps between them are out of bounds.
template <class T> class matrix_view {
  public:
    integer rows = 0;
    integer width = 0;

    matrix_view() = default;
    matrix_view(detail::machine& m, int argument, T* data, integer row_count, integer row_width, integer stride)
        : rows(row_count), width(row_width), machine_(&m), argument_(argument), data_(data), stride_(stride) {}
    operator matrix_view<const T>() const  // NOLINT(google-explicit-constructor)
        requires(!std::is_const_v<T>) {
        return machine_ == nullptr ? matrix_view<const T>{}
                                   : matrix_view<const T>{*machine_, argument_, data_, rows, width, stride_};
    }

    [[nodiscard]] view<T> row(integer r) const {
        if (r < 0 || r >= rows)
            machine_->fault("takes row ", r, " of argument ", argument_, ", which has ", rows,
                            rows == 1 ? " row" : " rows");
        return {*machine_, data_ + r * stride_, {false, argument_, rows == 1 ? -1 : r, width}};
    }
    decltype(auto) operator()(integer r, integer c) const { return row(r)[c]; }
    [[nodiscard]] bool empty() const { return data_ == nullptr || rows == 0; }

  private:
    detail::machine* machine_ = nullptr;
    int argument_ = 0;
    T* data_ = nullptr;
    integer stride_ = 0;
};

}  // namespace fathom::simulated
