// A function that is passed and called, and not kept: what takes one is compiled once, whatever it is given.
#pragma once

#include <type_traits>
#include <utility>

namespace fathom {

/// Refers to a callable that must outlive the call. Where Result is wanted and the callable gives nothing, Result{}.
template <class Signature> class function_ref;
template <class Result, class... Arguments> class function_ref<Result(Arguments...)> {
  public:
    template <class Call>
    requires(!std::is_same_v<std::remove_cvref_t<Call>, function_ref>)
        function_ref(Call&& call)  // NOLINT(google-explicit-constructor): a callable is what is meant
        : of_(const_cast<void*>(static_cast<const void*>(&call))), call_([](void* of, Arguments... arguments) {
              auto& callable = *static_cast<std::remove_reference_t<Call>*>(of);
              using given = decltype(callable(std::forward<Arguments>(arguments)...));
              if constexpr (std::is_void_v<given> && !std::is_void_v<Result>) {
                  callable(std::forward<Arguments>(arguments)...);
                  return Result{};
              } else {
                  return static_cast<Result>(callable(std::forward<Arguments>(arguments)...));
              }
          }) {}

    Result operator()(Arguments... arguments) const { return call_(of_, std::forward<Arguments>(arguments)...); }

  private:
    void* of_;
    Result (*call_)(void*, Arguments...);
};

}  // namespace fathom
