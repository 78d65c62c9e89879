// The experts that every token of a batch goes to, layer by layer: what one run writes down and another follows, so
// that two runs can be compared where a tie or a rounding would route otherwise.
#pragma once

#include <cstdint>
#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>
#include <vector>

namespace fathom::train {

/// Routes of a whole batch, those of all replicas. A token of a layer without experts, or that a module of multi-token
/// prediction does not have, has none: -1.
class routing_record {
  public:
    struct extents {
        integer layers = 0;  // modules of multi-token prediction come after the last block
        integer sequences = 0, length = 0;
        integer experts = 0;  // that a layer has
        integer top_k = 0;    // that a token goes to
        friend bool operator==(const extents&, const extents&) = default;
    };

    routing_record() = default;
    explicit routing_record(const extents& of)
        : of_(of), ids_(static_cast<std::size_t>(of.layers * of.sequences * of.length * of.top_k), -1) {}

    [[nodiscard]] const extents& of() const { return of_; }
    /// ids[layers, sequences, length, top_k], ascending for each token.
    [[nodiscard]] std::vector<std::int32_t>& ids() { return ids_; }
    [[nodiscard]] const std::vector<std::int32_t>& ids() const { return ids_; }
    /// The ids of a layer from a sequence on.
    [[nodiscard]] std::int32_t* row(integer layer, integer sequence) { return ids_.data() + at(layer, sequence); }
    [[nodiscard]] const std::int32_t* row(integer layer, integer sequence) const {
        return ids_.data() + at(layer, sequence);
    }

    /// Errors: a record of another model or batch; names both.
    void require(const extents& expected) const {
        if (of_ == expected) return;
        const auto text = [](const extents& e) {
            return text_of(e.sequences, " sequences of ", e.length, " tokens that go to ", e.top_k, " of ", e.experts,
                           " experts in ", e.layers, " layers");
        };
        fail("routing record: found ", text(of_), ", expected ", text(expected));
    }
    /// Errors: tokens of a layer without as many experts, ascending; names the first.
    void require_routes(integer layer, integer experts, integer top_k, integer first, integer sequences,
                        integer length) const {
        for (integer s = first; s < first + sequences; ++s)
            for (integer i = 0; i < length; ++i) {
                const std::int32_t* mine = row(layer, s) + i * of_.top_k;
                for (integer k = 0; k < top_k; ++k)
                    if (mine[k] < 0 || mine[k] >= experts || (k > 0 && mine[k] <= mine[k - 1]))
                        fail("routing record: layer ", layer, ", token ", i, " of sequence ", s, ": found expert ",
                             mine[k], " as number ", k, ", expected ", top_k, " ascending ones in [0, ", experts, ")");
            }
    }

  private:
    [[nodiscard]] integer at(integer layer, integer sequence) const {
        return (layer * of_.sequences + sequence) * of_.length * of_.top_k;
    }

    extents of_{};
    std::vector<std::int32_t> ids_;
};

/// What of routes a step is asked for.
struct routing {
    routing_record* record = nullptr;        // gets the routes of this step, all ranks' the same; each rank has its own
    const routing_record* follow = nullptr;  // the routes that tokens take, instead of those that routers choose
};

}  // namespace fathom::train
