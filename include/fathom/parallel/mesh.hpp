// The layout of ranks as a type: which kinds of parallelism there are and how far each goes.
#pragma once

#include <array>
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
/// Expert parallelism: the experts are split. They see the ranks of a pipeline stage, dp x cp x tp of them, a second
/// time, as copies x ep x etp.
template <integer N> struct ep { static constexpr integer value = N; };
/// Expert-tensor parallelism: the products of each expert are split.
template <integer N> struct etp { static constexpr integer value = N; };
/// Context parallelism: sequences are split.
template <integer N> struct cp { static constexpr integer value = N; };

/// The axes of a mesh. Experts' axes are not in a rank's order: they lie on those of its stage.
enum class mesh_axis : unsigned char { dp, tp, pp, ep, cp, etp };

/// rank_order<mesh_axis::tp, mesh_axis::cp, mesh_axis::dp, mesh_axis::pp>: which ranks are neighbours, the innermost
/// axis first. This one is what a mesh has when nothing is said: tensor ranks talk most and lie nearest.
template <mesh_axis... Axes> struct rank_order {
    static constexpr std::array<mesh_axis, sizeof...(Axes)> value{Axes...};
};

namespace detail {

template <class Word> inline constexpr bool is_rank_order = false;
template <mesh_axis... Axes> inline constexpr bool is_rank_order<rank_order<Axes...>> = true;

template <class... Words> struct order_of {
    static constexpr std::array<mesh_axis, 4> value{mesh_axis::tp, mesh_axis::cp, mesh_axis::dp, mesh_axis::pp};
};
template <mesh_axis A, mesh_axis B, mesh_axis C, mesh_axis D, class... Words>
struct order_of<rank_order<A, B, C, D>, Words...> {
    static constexpr std::array<mesh_axis, 4> value{A, B, C, D};
};
template <class First, class... Words> struct order_of<First, Words...> : order_of<Words...> {};

/// tp, cp, dp and pp, each once; what is no order is none of this rule's business.
template <class Word> inline constexpr bool orders_all_axes = !is_rank_order<Word>;
template <mesh_axis... Axes>
inline constexpr bool orders_all_axes<rank_order<Axes...>> = [] {
    int seen[6] = {};
    (++seen[static_cast<int>(Axes)], ...);
    return sizeof...(Axes) == 4 && seen[static_cast<int>(mesh_axis::tp)] == 1 &&
           seen[static_cast<int>(mesh_axis::cp)] == 1 && seen[static_cast<int>(mesh_axis::dp)] == 1 &&
           seen[static_cast<int>(mesh_axis::pp)] == 1;
}();

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
template <integer N> inline constexpr bool is_mesh_axis<etp<N>> = true;

/// The degree that an axis gives; 1 for what is no axis.
template <class Axis> struct given_degree { static constexpr integer value = 1; };
template <template <integer> class Axis, integer N> struct given_degree<Axis<N>> {
    static constexpr integer value = N;
};

}  // namespace detail

namespace rule {

template <class... Axes> struct only_mesh_axes {
    static_assert(
        ((detail::is_mesh_axis<Axes> || detail::is_rank_order<Axes>)&&...),
        "fathom: a mesh is made of its axes only. fix: dp<N>, tp<N>, pp<N>, cp<N>, ep<N>, etp<N> and rank_order<...>; "
        "the rest belongs to training<>.");
};

template <class... Axes> struct order_names_each_axis_once {
    static_assert((detail::orders_all_axes<Axes> && ...),
                  "fathom: the order of ranks does not name each axis once. fix: rank_order<> takes mesh_axis::tp, cp, "
                  "dp and pp, the innermost first; experts' axes lie on those of their stage.");
    static_assert((0 + ... + int{detail::is_rank_order<Axes>}) <= 1,
                  "fathom: a mesh has two orders of ranks. fix: keep one rank_order<...>.");
};

template <class... Axes> struct mesh_axes_are_given_once {
    static_assert(
        detail::uses_of<dp, Axes...>::value <= 1 && detail::uses_of<tp, Axes...>::value <= 1 &&
            detail::uses_of<pp, Axes...>::value <= 1 && detail::uses_of<ep, Axes...>::value <= 1 &&
            detail::uses_of<cp, Axes...>::value <= 1 && detail::uses_of<etp, Axes...>::value <= 1,
        "fathom: a mesh axis is given twice. fix: write each of dp, tp, pp, cp, ep and etp at most once in mesh<>.");
};

template <class... Axes> struct degrees_are_positive {
    static_assert(((detail::given_degree<Axes>::value >= 1 || detail::given_degree<Axes>::value == any) && ...),
                  "fathom: a degree of parallelism is a number of ranks. fix: pick 1 or more in mesh<>, or dp<any>.");
    static_assert(detail::degree_of<tp, Axes...>::value != any && detail::degree_of<pp, Axes...>::value != any &&
                      detail::degree_of<ep, Axes...>::value != any && detail::degree_of<cp, Axes...>::value != any &&
                      detail::degree_of<etp, Axes...>::value != any,
                  "fathom: only the extent of dp may be left to the start. fix: give tp, pp, cp, ep and etp a number.");
};

/// Numbers as types, so that the notes after an error name them.
template <integer N> struct ranks_of_a_stage { static constexpr integer value = N; };
template <class StageRanks, class Experts, class ExpertTensor> struct experts_divide_the_stage {
    static_assert(StageRanks::value < 1 || Experts::value < 1 || ExpertTensor::value < 1 ||
                      StageRanks::value % (Experts::value * ExpertTensor::value) == 0,
                  "fathom: experts' ranks must divide those of their stage. fix: pick ep<N> and etp<N> whose product "
                  "divides dp x cp x tp.");
};

}  // namespace rule

/// Kinds and degrees of parallelism, and the order of ranks; what is not named has degree 1.
template <class... Axes>
struct mesh : rule::only_mesh_axes<Axes...>,
              rule::mesh_axes_are_given_once<Axes...>,
              rule::order_names_each_axis_once<Axes...>,
              rule::degrees_are_positive<Axes...>,
              rule::experts_divide_the_stage<rule::ranks_of_a_stage<detail::degree_of<fathom::dp, Axes...>::value *
                                                                    detail::degree_of<fathom::cp, Axes...>::value *
                                                                    detail::degree_of<fathom::tp, Axes...>::value>,
                                             ep<detail::degree_of<fathom::ep, Axes...>::value>,
                                             etp<detail::degree_of<fathom::etp, Axes...>::value>> {
    static constexpr integer dp_degree = detail::degree_of<fathom::dp, Axes...>::value;
    static constexpr integer tp_degree = detail::degree_of<fathom::tp, Axes...>::value;
    static constexpr integer pp_degree = detail::degree_of<fathom::pp, Axes...>::value;
    static constexpr integer ep_degree = detail::degree_of<fathom::ep, Axes...>::value;
    static constexpr integer cp_degree = detail::degree_of<fathom::cp, Axes...>::value;
    static constexpr integer etp_degree = detail::degree_of<fathom::etp, Axes...>::value;
    static constexpr std::array<mesh_axis, 4> order = detail::order_of<Axes...>::value;
};

}  // namespace fathom
