// Runs one step forward and backward and keeps all that other layouts make too: weights, the residual stream after
// every block, losses and gradients.
#pragma once

#include <fathom/train/engine.hpp>
#include <fathom/train/held_slices.hpp>
#include <fathom/train/recorded_step.hpp>
#include <limits>
#include <map>
#include <string>
#include <utility>

namespace fathom::train {

namespace detail {

/// What one rank makes of a batch of `sequences` x `length`, of which it has those from `first` on.
template <class Engine> class step_recorder {
  public:
    using transformer = typename Engine::transformer;
    using kind_of_tensor = recorded_tensor::kind;
    using micro_batch = nn::micro_batch<typename Engine::A>;

    step_recorder(Engine& engine, const batch_view& whole, integer first)
        : engine_(engine),
          sequences_(whole.sequences),
          length_(whole.length),
          first_(first),
          rank_(engine.ranks().rank()) {}

    [[nodiscard]] recorded_step& seen() { return seen_; }

    /// What a chunk kept of a micro-batch.
    void forward(const micro_batch& batch, int chunk, const typename transformer::saved& s) {
        const transformer& model = engine_.model();
        if (model.held[chunk].embedding) rows({"embedded", forwards, -1, "lookup", -1}, batch, 0, s.embedded);
        model.each_layer_of(chunk, [&](const auto&, auto kind, const models::layer_place& i) {
            const auto& block = std::get<kind()>(s.blocks)[static_cast<std::size_t>(i.in_chunk)];
            const std::string layer = text_of("layers.", i.number, '.');
            // Not kept where whole blocks are recomputed.
            rows({layer + "attention", forwards, i.number, "o_proj and residual", 3 * i.number}, batch, 0,
                 block.in.mid);
            if constexpr (requires { block.in.mlp.ids; })
                rows({layer + "experts", forwards, i.number, "router", 3 * i.number + 1}, batch, 0, block.in.mlp.ids);
            rows({layer + "output", forwards, i.number, "down_proj and residual", 3 * i.number + 2}, batch, 0, block.y);
        });
        if (!model.held[chunk].head) return;
        const integer after = 3 * model.layers();
        rows({"normed", forwards, -1, "final norm", after}, batch, 0, s.normed);
        for (integer k = 1; k <= model.of.num_nextn_predict_layers; ++k)
            rows({text_of("mtp.", k - 1, ".normed"), forwards, -1, "multi-token prediction", after + k},
                 model.depth_batch(batch, engine_.memory().inputs, k), k,
                 s.mtp[static_cast<std::size_t>(k - 1)].normed);
    }
    void losses(const step_result& r) {
        const std::pair<const char*, double> terms[] = {{"cross_entropy", r.cross_entropy},
                                                        {"z_loss", r.z_loss},
                                                        {"mtp_loss", r.mtp_loss},
                                                        {"balance_loss", r.balance_loss},
                                                        {"loss", r.loss}};
        integer order = std::numeric_limits<integer>::max() - 5;
        for (const auto& [name, value] : terms) {
            recorded_tensor t = named({name, forwards, -1, "loss", order++}, 1, 1);
            t.pieces.push_back({rank_, 0, 0, 1, 1, {value}});
            seen_.add(std::move(t));
        }
    }
    /// The weights, or the gradients, that this rank keeps.
    void parameters(kind_of_tensor what) {
        std::map<std::string, integer> numbers;
        engine_.each_part([&](const auto& p, const nn::part& part) {
            for (integer n = 0; n < part.count; ++n)
                numbers[numbered_name(p.name, part.number + n)] = p.number + part.number + n;
        });
        each_held_slice(engine_, [&](const auto& held) {
            const checkpoint::slice& of = held.of;
            integer order = numbers[of.name];
            // Backward goes from the last layer to the first, and begins with the head.
            if (what == kind_of_tensor::gradient)
                order = of.name == "lm_head.weight" ? std::numeric_limits<integer>::min() : -order;
            recorded_tensor t = named({of.name, what, held.layer, "", order}, of.of_rows, of.of_columns);
            auto& piece =
                t.pieces.emplace_back(recorded_tensor::piece{rank_, of.row, of.column, of.rows, of.columns, {}});
            for (integer i = 0; i < of.size(); ++i)
                piece.values.push_back(what == kind_of_tensor::weight ? static_cast<double>(held.weights[i])
                                                                      : static_cast<double>(held.gradients[i]));
            seen_.add(std::move(t));
        });
    }

  private:
    static constexpr auto forwards = kind_of_tensor::forward;
    struct title {
        std::string name;
        kind_of_tensor what;
        integer layer;
        const char* operation;
        integer order;
    };
    static recorded_tensor named(const title& of, integer rows, integer columns) {
        return {of.name, of.what, of.layer, of.operation, of.order, rows, columns, {}};
    }
    /// This rank's share of the tokens of a micro-batch; each sequence lacks its last `missing`.
    template <class View> void rows(const title& of, const micro_batch& batch, integer missing, const View& x) {
        if (x.empty()) return;
        const integer length = length_ - missing;
        recorded_tensor t = named(of, sequences_ * length, x.width);
        for (integer r = 0; r < x.rows; ++r) {
            const auto token = batch.token(r);
            auto& piece = t.pieces.emplace_back(
                recorded_tensor::piece{rank_, (first_ + token.sequence) * length + token.place, 0, 1, x.width, {}});
            for (integer c = 0; c < x.width; ++c) piece.values.push_back(static_cast<double>(x(r, c)));
        }
        seen_.add(std::move(t));
    }

    Engine& engine_;
    integer sequences_, length_, first_, rank_;
    recorded_step seen_;
};

}  // namespace detail

/// One step's forward and backward, without an update: of every rank's weights, residual stream after every block
/// ("layers.N.attention" within it, "layers.N.output" after it, [tokens of the batch, hidden]), experts chosen
/// ("layers.N.experts", ascending), final norm, losses and
/// gradients, in `to`. All ranks call it together, threads of one process with the same `to`, each with the whole batch
/// of all replicas. Errors: a batch that replicas cannot share evenly; ranks of whole models under ZeRO-3.
template <class Engine>
step_result record_step(Engine& engine, const batch_view& whole, const step_settings& settings, recorded_step& to) {
    const comm::mesh_links& links = engine.links();
    if (whole.sequences % links.of.dp != 0)
        fail("record_step: found ", whole.sequences, " sequences, expected a multiple of the ", links.of.dp,
             " replicas");
    const integer each = whole.sequences / links.of.dp, first = links.at.dp * each, at = first * whole.length;
    const auto part = [at](const std::int32_t* all) { return all == nullptr ? nullptr : all + at; };
    const batch_view mine{
        each, whole.length, part(whole.tokens), part(whole.targets), part(whole.positions), part(whole.starts)};
    detail::step_recorder<Engine> recorder{engine, whole, first};
    recorder.parameters(recorded_tensor::kind::weight);
    step_result result;
    if constexpr (Engine::transformer::split) {
        engine.stages().watch_forward(
            [&](const auto& batch, int, int chunk, const auto& saved) { recorder.forward(batch, chunk, saved); });
        try {
            result = engine.accumulate(mine, settings);
        } catch (...) {
            engine.stages().watch_forward({});
            throw;
        }
        engine.stages().watch_forward({});
    } else {
        if (engine.shape().shards.zero > 2)
            fail("record_step: found ZeRO-3 over whole models, expected ZeRO-2 at most");
        auto& memory = engine.memory();
        engine.each_micro_batch(mine, settings, [&](const auto& batch, const models::loss_weights&) {
            engine.model().forward(engine.queue(), batch, memory.inputs, memory.weight_views, memory.buffers,
                                   memory.saved, memory.workspace);
            recorder.forward(batch, 0, memory.saved);
        });
        result = engine.accumulate(mine, settings);
    }
    recorder.losses(result);
    recorder.parameters(recorded_tensor::kind::gradient);
    to.take(std::move(recorder.seen()));
    return result;
}

}  // namespace fathom::train
