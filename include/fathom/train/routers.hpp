// The routers of the layers that a rank holds, in one list: what a step does with their loads, biases and routes is
// then no code over a model's types.
#pragma once

#include <algorithm>
#include <fathom/comm/all_reduce.hpp>
#include <fathom/comm/mesh_links.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/nn/layer_routes.hpp>
#include <fathom/ops/elementwise.hpp>
#include <fathom/ops/router.hpp>
#include <fathom/train/batch_view.hpp>
#include <fathom/train/routing_record.hpp>
#include <numeric>
#include <vector>

namespace fathom::train {

/// A is the format of biases. Layers are `blocks` blocks, then modules of multi-token prediction.
template <class A> class routers {
  public:
    routers() = default;
    template <class Transformer> routers(const Transformer& model, typename Transformer::buffers& of) {
        blocks_ = model.layers(), layers_ = blocks_ + model.of.num_nextn_predict_layers;
        const auto add = [this](const auto& layer, auto& buffers, integer number) {
            if constexpr (requires { buffers.load; })
                all_.push_back({number, layer.of.mlp.router, buffers.bias, buffers.load, &buffers.routes});
        };
        model.each_layer([&](const auto& layer, auto kind, integer i, integer number) {
            add(layer, std::get<kind()>(of.blocks)[static_cast<std::size_t>(i)], number);
        });
        for (integer k = 0; k < model.depths_here(); ++k)
            add(model.mtp().layer, of.mtp[static_cast<std::size_t>(k)], blocks_ + k);
    }

    void clear_loads(host::queue& queue) const {
        for (const router& r : all_) ops::fill_zero(queue, r.load.data, r.load.size());
    }
    void sum_loads(const comm::link& over) const {
        for (const router& r : all_) over.run(comm::all_reduce(r.load.data, r.load.size()).from("loads of experts"));
    }
    void update_biases(host::queue& queue, double speed) const {
        for (const router& r : all_)
            if (!r.bias.empty()) ops::bias_update(queue, r.bias.data, r.load.data, r.bias.width, speed);
    }

    /// Says to routers whether they record or follow routes, until the next batch: `b` is this replica's part of one.
    /// All ranks call it together. Errors: a record that does not fit.
    void set_routes(const comm::mesh_links& links, const batch_view& b, const routing& how) const {
        for (const router& r : all_) *r.routes = {};
        if (how.record == nullptr && how.follow == nullptr) return;
        integer most[2] = {0, 0};  // of any layer
        for (const router& r : all_)
            most[0] = std::max(most[0], r.facts.experts), most[1] = std::max(most[1], r.facts.top_k);
        links.pipeline.run(comm::all_reduce(most, 2, comm::reduction::max).from("numbers of experts"));
        std::vector<integer> counts(static_cast<std::size_t>(links.of.dp));
        const auto mine = counts.begin() + links.at.dp;
        *mine = b.sequences;
        links.replica.run(comm::all_reduce(counts.data(), links.of.dp).from("numbers of sequences"));
        const integer first = std::accumulate(counts.begin(), mine, integer{0});
        const routing_record::extents whole{.layers = layers_,
                                            .sequences = std::accumulate(mine, counts.end(), first),
                                            .length = b.length,
                                            .experts = most[0],
                                            .top_k = most[1]};
        if (how.follow != nullptr) how.follow->require(whole);
        if (how.record != nullptr) *how.record = routing_record{whole};
        for (const router& r : all_) {
            *r.routes = {.length = whole.length, .width = whole.top_k};
            if (how.record != nullptr) r.routes->record = how.record->row(r.layer, first);
            if (how.follow == nullptr) continue;
            const integer missing = std::max<integer>(0, r.layer + 1 - blocks_);
            how.follow->require_routes(r.layer, r.facts.experts, r.facts.top_k, first, b.sequences, b.length - missing);
            r.routes->follow = how.follow->row(r.layer, first);
        }
    }
    /// What all ranks recorded, on each of them. All ranks call it together.
    static void gather_routes(const comm::mesh_links& links, const routing& how) {
        if (how.record == nullptr) return;
        auto& ids = how.record->ids();
        links.world.run(
            comm::all_reduce(ids.data(), static_cast<integer>(ids.size()), comm::reduction::max).from("routes"));
    }

  private:
    struct router {
        integer layer = 0;
        ops::router_facts facts{};
        matrix<A> bias;  // empty where the family has none
        matrix<integer> load;
        nn::layer_routes* routes = nullptr;
    };

    std::vector<router> all_;
    integer blocks_ = 0, layers_ = 0;
};

}  // namespace fathom::train
