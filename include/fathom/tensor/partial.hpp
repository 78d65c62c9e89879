// A value that is only a rank's share of a sum, told apart by its type from the sum itself.
#pragma once

#include <type_traits>

namespace fathom {

/// A view (a pointer, matrix or tensor) of numbers that are still to be summed over the named mesh axes.
template <class View, class... MeshAxes> class partial {
    static_assert(sizeof...(MeshAxes) > 0,
                  "fathom: partial<> names no mesh axis. fix: name the axes that the sum runs over.");

  public:
    constexpr explicit partial(View share) : share_{share} {}
    /// This rank's share, for the code that adds the shares up.
    [[nodiscard]] constexpr View share() const { return share_; }

  private:
    View share_;
};

template <class View> inline constexpr bool is_partial = false;
template <class View, class... MeshAxes> inline constexpr bool is_partial<partial<View, MeshAxes...>> = true;

namespace rule {

/// What moves weights, or leaves the ranks in another way, is a whole sum.
template <class Gradient> struct gradient_is_reduced {
    static_assert(!is_partial<Gradient>,
                  "fathom: a partial gradient must be reduced before the optimizer sees it. "
                  "fix: all_reduce or reduce_scatter it over the axes that its type names.");
    static constexpr bool holds = true;
};

}  // namespace rule
}  // namespace fathom
