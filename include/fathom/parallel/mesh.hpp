// The layout of ranks as a type: which kinds of parallelism there are and how far each goes.
#pragma once

#include <fathom/core/bytes.hpp>

namespace fathom {

/// A degree that the start decides, not the type.
inline constexpr integer any = -1;

/// Data parallelism: replicas that see different batches.
template <integer N> struct dp { static constexpr integer value = N; };
/// Tensor parallelism: the products of a layer are split.
template <integer N> struct tp { static constexpr integer value = N; };
/// Pipeline parallelism: the layers are split.
template <integer N> struct pp { static constexpr integer value = N; };
/// Expert parallelism: the experts are split, over the ranks of dp and cp.
template <integer N> struct ep { static constexpr integer value = N; };
/// Context parallelism: sequences are split.
template <integer N> struct cp { static constexpr integer value = N; };

/// The axes of a mesh.
enum class mesh_axis : unsigned char { dp, tp, pp, ep, cp, etp };

namespace detail {

template <template <integer> class Axis, class... Axes> struct degree_of { static constexpr integer value = 1; };
template <template <integer> class Axis, integer N, class... Axes> struct degree_of<Axis, Axis<N>, Axes...> {
    static constexpr integer value = N;
};
template <template <integer> class Axis, class First, class... Axes>
struct degree_of<Axis, First, Axes...> : degree_of<Axis, Axes...> {};

template <template <integer> class Axis, class... Axes> struct uses_of { static constexpr int value = 0; };
template <template <integer> class Axis, class First, class... Axes> struct uses_of<Axis, First, Axes...> {
    static constexpr int value = uses_of<Axis, Axes...>::value;
};
template <template <integer> class Axis, integer N, class... Axes> struct uses_of<Axis, Axis<N>, Axes...> {
    static constexpr int value = 1 + uses_of<Axis, Axes...>::value;
};

template <class Axis> inline constexpr bool is_mesh_axis = false;
template <integer N> inline constexpr bool is_mesh_axis<dp<N>> = true;
template <integer N> inline constexpr bool is_mesh_axis<tp<N>> = true;
template <integer N> inline constexpr bool is_mesh_axis<pp<N>> = true;
template <integer N> inline constexpr bool is_mesh_axis<ep<N>> = true;
template <integer N> inline constexpr bool is_mesh_axis<cp<N>> = true;

/// The degree that an axis gives; 1 for what is no axis.
template <class Axis> struct given_degree { static constexpr integer value = 1; };
template <template <integer> class Axis, integer N> struct given_degree<Axis<N>> {
    static constexpr integer value = N;
};

}  // namespace detail

namespace rule {

template <class... Axes> struct only_mesh_axes {
    static_assert(
        (detail::is_mesh_axis<Axes> && ...),
        "fathom: a mesh is made of its axes only. fix: dp<N>, tp<N>, pp<N>, ep<N> and cp<N>; the rest belongs "
        "to training<>.");
};

template <class... Axes> struct mesh_axes_are_given_once {
    static_assert(
        detail::uses_of<dp, Axes...>::value <= 1 && detail::uses_of<tp, Axes...>::value <= 1 &&
            detail::uses_of<pp, Axes...>::value <= 1 && detail::uses_of<ep, Axes...>::value <= 1 &&
            detail::uses_of<cp, Axes...>::value <= 1,
        "fathom: a mesh axis is given twice. fix: write each of dp, tp, pp, ep and cp at most once in mesh<>.");
};

template <class... Axes> struct degrees_are_positive {
    static_assert(((detail::given_degree<Axes>::value >= 1 || detail::given_degree<Axes>::value == any) && ...),
                  "fathom: a degree of parallelism is a number of ranks. fix: pick 1 or more in mesh<>, or dp<any>.");
    static_assert(detail::degree_of<tp, Axes...>::value != any && detail::degree_of<pp, Axes...>::value != any &&
                      detail::degree_of<ep, Axes...>::value != any && detail::degree_of<cp, Axes...>::value != any,
                  "fathom: only the extent of dp may be left to the start. fix: give tp, pp, ep and cp a number.");
};

template <class... Axes> struct only_data_is_split {
    static_assert(detail::degree_of<tp, Axes...>::value <= 1 && detail::degree_of<pp, Axes...>::value <= 1 &&
                      detail::degree_of<ep, Axes...>::value <= 1 && detail::degree_of<cp, Axes...>::value <= 1,
                  "fathom: this version splits the data, not the model. fix: write mesh<dp<N>>, mesh<dp<any>> or "
                  "mesh<>.");
};

}  // namespace rule

/// Kinds and degrees of parallelism; what is not named has degree 1.
template <class... Axes>
struct mesh : rule::only_mesh_axes<Axes...>,
              rule::mesh_axes_are_given_once<Axes...>,
              rule::degrees_are_positive<Axes...>,
              rule::only_data_is_split<Axes...> {
    static constexpr integer dp_degree = detail::degree_of<fathom::dp, Axes...>::value;
    static constexpr integer tp_degree = detail::degree_of<fathom::tp, Axes...>::value;
    static constexpr integer pp_degree = detail::degree_of<fathom::pp, Axes...>::value;
    static constexpr integer ep_degree = detail::degree_of<fathom::ep, Axes...>::value;
    static constexpr integer cp_degree = detail::degree_of<fathom::cp, Axes...>::value;
};

}  // namespace fathom
