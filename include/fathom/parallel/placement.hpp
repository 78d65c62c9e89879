// Where the numbers of a tensor are, as a part of its type: which ranks have which of them, and whether they are still
// to be summed.
#pragma once

#include <array>
#include <fathom/parallel/mesh.hpp>
#include <fathom/tensor/partial.hpp>
#include <fathom/tensor/tensor.hpp>
#include <type_traits>

namespace fathom {

/// The axis of a tensor is cut over mesh axes: in parts over the first, these over the second, and so on.
template <class TensorAxis, mesh_axis... Over> struct shard {};
/// All ranks along the mesh axes have the same numbers.
template <mesh_axis... Over> struct replicate {};
/// The numbers are the sum of what the ranks along the mesh axes have.
template <mesh_axis... Over> struct sum_over {};

/// What a placement does along one mesh axis.
enum class placed_as : unsigned char { nothing, rows, columns, replica, summand };

namespace detail {

inline constexpr int mesh_axes = 6;

/// A placement in numbers. Mesh axes that are not named are none of its business.
struct placement_facts {
    std::array<placed_as, mesh_axes> as{};
    std::array<int, mesh_axes> place{};  // among the mesh axes that cut one axis, from 0
    std::array<int, 2> cuts{};           // of rows, of columns
    bool twice = false, foreign_axis = false, two_views = false, over_stages = false;

    [[nodiscard]] constexpr placed_as of(mesh_axis a) const { return as[static_cast<std::size_t>(a)]; }
    constexpr void put(mesh_axis a, placed_as how) {
        const auto at = static_cast<std::size_t>(a);
        twice = twice || as[at] != placed_as::nothing;
        as[at] = how;
        if (how == placed_as::rows || how == placed_as::columns) place[at] = cuts[how == placed_as::rows ? 0 : 1]++;
        over_stages = over_stages || a == mesh_axis::pp;
        const auto any_of = [&](auto... axes) { return ((of(axes) != placed_as::nothing) || ...); };
        two_views = any_of(mesh_axis::ep, mesh_axis::etp) && any_of(mesh_axis::dp, mesh_axis::cp, mesh_axis::tp);
    }
    /// Whether a mesh axis cuts nothing, or cuts last.
    [[nodiscard]] constexpr bool innermost(mesh_axis a) const {
        const auto at = static_cast<std::size_t>(a);
        return (of(a) != placed_as::rows || place[at] + 1 == cuts[0]) &&
               (of(a) != placed_as::columns || place[at] + 1 == cuts[1]);
    }
    [[nodiscard]] constexpr bool any(placed_as how) const {
        for (const placed_as a : as)
            if (a == how) return true;
        return false;
    }
    [[nodiscard]] constexpr bool valid() const { return !twice && !foreign_axis && !two_views && !over_stages; }
};

template <class Tensor> struct placement_of {
    placement_facts facts;

    template <class Axis, mesh_axis... Over> constexpr void add(shard<Axis, Over...>) {
        constexpr bool rows = std::is_same_v<Axis, typename Tensor::rows_axis>;
        facts.foreign_axis = facts.foreign_axis || !(rows || std::is_same_v<Axis, typename Tensor::columns_axis>);
        (facts.put(Over, rows ? placed_as::rows : placed_as::columns), ...);
    }
    template <mesh_axis... Over> constexpr void add(replicate<Over...>) { (facts.put(Over, placed_as::replica), ...); }
    template <mesh_axis... Over> constexpr void add(sum_over<Over...>) { (facts.put(Over, placed_as::summand), ...); }
};
template <class Tensor, class... Words>
inline constexpr placement_facts facts_of_placement = [] {
    placement_of<Tensor> all;
    (all.add(Words{}), ...);
    return all.facts;
}();

template <class Word> struct dual_word { using type = Word; };
template <mesh_axis... Over> struct dual_word<replicate<Over...>> { using type = sum_over<Over...>; };
template <mesh_axis... Over> struct dual_word<sum_over<Over...>> { using type = replicate<Over...>; };

}  // namespace detail

namespace rule {

template <class Tensor, class... Words> struct placement_is_possible {
    static constexpr auto facts = detail::facts_of_placement<Tensor, Words...>;
    static_assert(!facts.twice,
                  "fathom: a mesh axis is spent twice on one tensor. fix: name each mesh axis in one of shard<>, "
                  "replicate<> and sum_over<>, once.");
    static_assert(!facts.foreign_axis,
                  "fathom: a placement cuts an axis that the tensor does not have. fix: name one of its own axes in "
                  "shard<>.");
    static_assert(!facts.two_views,
                  "fathom: a tensor is placed over both views of the same ranks. fix: name dp, cp and tp, or ep and "
                  "etp, which lie on them.");
    static_assert(!facts.over_stages,
                  "fathom: a tensor is placed over pipeline stages. fix: leave pp out; stages hold other layers.");
};
template <class Tensor, class... Words> struct nothing_is_still_to_be_summed {
    static_assert(!detail::facts_of_placement<Tensor, Words...>.any(placed_as::summand),
                  "fathom: a partial sum is used as the sum. fix: redistribute<> it, to replicate<> or shard<> over "
                  "the axes of its sum_over<>.");
    static constexpr bool holds = true;
};
template <class Tensor, class... Words> struct nothing_is_cut {
    static_assert(!detail::facts_of_placement<Tensor, Words...>.any(placed_as::rows) &&
                      !detail::facts_of_placement<Tensor, Words...>.any(placed_as::columns),
                  "fathom: a shard is used as the whole tensor. fix: redistribute<> it to replicate<> over the axes of "
                  "its shard<>.");
    static constexpr bool holds = true;
};

}  // namespace rule

/// A view x[rows, columns] of what one rank has of a tensor, and in words what that is:
/// placed<tensor<float, axis::tokens, axis::hidden>, shard<axis::tokens, mesh_axis::cp>, sum_over<mesh_axis::tp>>.
template <class Tensor, class... Words> class placed : rule::placement_is_possible<Tensor, Words...> {
  public:
    using tensor_type = Tensor;
    static constexpr const detail::placement_facts& facts = detail::facts_of_placement<Tensor, Words...>;
    /// The placement of its gradient: ranks with the same numbers each have a part of the sum of their gradients, and
    /// the numbers of a sum have the same gradient.
    using dual = placed<Tensor, typename detail::dual_word<Words>::type...>;

    constexpr explicit placed(Tensor share) : share_{share} {}
    /// What this rank has, for the code that knows what it is.
    [[nodiscard]] constexpr Tensor share() const { return share_; }
    /// The tensor, which this rank has all of.
    [[nodiscard]] constexpr Tensor whole() const {
        static_cast<void>(rule::nothing_is_still_to_be_summed<Tensor, Words...>::holds &&
                          rule::nothing_is_cut<Tensor, Words...>::holds);
        return share_;
    }

  private:
    Tensor share_;
};

/// So that the optimizer refuses it.
template <class Tensor, class... Words>
inline constexpr bool is_partial<placed<Tensor, Words...>> = placed<Tensor, Words...>::facts.any(placed_as::summand);

}  // namespace fathom
