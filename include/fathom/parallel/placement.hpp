// Where a parameter lives in its three states: when products read it, as a gradient before reduction, and at rest.
#pragma once

#include <fathom/parallel/mesh.hpp>

namespace fathom {

/// A set of mesh axes.
class axis_set {
  public:
    constexpr axis_set() = default;
    template <class... Axes>
    constexpr explicit axis_set(Axes... axes) : bits_(static_cast<unsigned char>((bit(axes) | ... | 0u))) {}
    [[nodiscard]] constexpr bool has(mesh_axis a) const { return (bits_ & bit(a)) != 0; }
    [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
    constexpr bool operator==(const axis_set&) const = default;

  private:
    static constexpr unsigned bit(mesh_axis a) { return 1u << static_cast<unsigned>(a); }
    unsigned char bits_ = 0;
};

/// A parameter's placements (ZeRO paper, Rajbhandari et al., 2020, for `rest`; Megatron-LM for `compute`).
struct placement {
    axis_set rows;     // compute: the axes that its rows are split over
    axis_set columns;  // compute: the axes that its columns are split over
    axis_set partial;  // gradient: the axes over which each rank holds a part of the sum
    axis_set shard;    // rest: the axes over whose ranks a flat shard of its bucket is kept
};

}  // namespace fathom
