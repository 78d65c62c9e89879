// Where a number that is not finite came from: when a step went wrong it is done again, slowly, with a look at
// everything that it makes.
#pragma once

#include <cmath>
#include <cstdint>
#include <fathom/comm/barrier.hpp>
#include <fathom/core/error.hpp>
#include <fathom/device/host/memory.hpp>
#include <fathom/optim/gradient_norm.hpp>
#include <fathom/train/engine.hpp>
#include <fathom/train/held_slices.hpp>
#include <fathom/train/pretrained.hpp>
#include <fathom/train/saved_batch.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fathom::train {

/// The first number of a step that is NaN or infinite, in the order of computation.
struct finding {
    std::int64_t step = 0;  // that failed, counted from 1
    integer micro_batch = 0;
    integer layer = -1;      // -1: outside of layers
    std::string layer_name;  // the kind of a layer's feed-forward part, or what is outside of layers
    std::string operation;
    bool backward = false;
    std::string tensor;
    integer row = 0;  // of an activation: a token of the micro-batch; of `logsumexp`: a head
    integer column = 0;
    double value = 0;
    std::string weight;  // the first weight that is not finite itself, as NAME[row, column]; empty: none
};

/// "step 41, micro-batch 0: forward of layer 3 (experts), router: scores[17, 5] is nan"
inline std::string describe(const finding& f) {
    std::string text =
        text_of("step ", f.step, ", micro-batch ", f.micro_batch, ": ", f.backward ? "backward of " : "forward of ");
    text += f.layer >= 0 ? text_of("layer ", f.layer, " (", f.layer_name, ")") : "the " + f.layer_name;
    const char* value = std::isnan(f.value) ? "nan" : f.value > 0 ? "inf" : "-inf";
    text += text_of(", ", f.operation, ": ", f.tensor, '[', f.row, ", ", f.column, "] is ", value);
    if (!f.weight.empty()) text += text_of("; the weight ", f.weight, " is not finite itself");
    return text;
}

namespace detail {

/// One repetition of a step. Layers run one at a time in memory of their own, without recomputation, so that all they
/// make can be seen whatever the recipe keeps; the residual stream stays where the engine has it.
template <class Engine> class examination {
  public:
    using T = typename Engine::T;
    using A = typename Engine::A;
    using stream = tensor<T, axis::tokens, axis::hidden>;
    using const_stream = tensor<const T, axis::tokens, axis::hidden>;
    using micro_batch = nn::micro_batch<A>;

    explicit examination(Engine& engine)
        : engine_(engine), model_(engine.model()), memory_(engine.memory()), queue_(engine.queue()) {}

    std::optional<finding> examine(const batch_view& b, const step_settings& settings) {
        if (memory_.gradients.data == nullptr)
            fail("diagnose: found an engine without gradients, expected one that trains");
        ops::fill_zero(queue_, memory_.gradients.data, memory_.gradients.count);
        at_.step = engine_.steps_done() + 1;
        engine_.each_micro_batch(b, settings, [&](micro_batch part, const models::loss_weights& weights) {
            part.balance_weight = weights.balance;
            part.balance_loss = &unread_loss_;
            if (!own_) own_.emplace(bytes_of_a_layer(part.shape));
            if (!found_) forward(part);
            if (!found_) backward(part, weights);
            at_.micro_batch += 1;
        });
        if (found_) found_->weight = bad_weight();
        return found_;
    }

  private:
    /// A block as it is without recomputation.
    template <class Layer> static constexpr Layer plain(Layer layer) {
        layer.again = {};
        return layer;
    }
    [[nodiscard]] auto plain_mtp() const { return typename Engine::transformer::mtp_module{plain(model_.mtp().layer)}; }
    [[nodiscard]] integer bytes_of_a_layer(nn::extents shape) const {
        integer most = 0;
        const auto count = [&](const auto& layer, nn::extents extents) {
            arena counted;
            layer.keep(counted, extents);
            layer.defer(counted, extents, false);
            layer.work(counted, extents);
            most = std::max(most, counted.peak());
        };
        model_.each_segment([&](const auto& part, auto) { count(plain(part.layer), shape); });
        if (model_.of.num_nextn_predict_layers > 0) count(plain_mtp(), model_.shorter(shape, 1));
        return most;
    }

    void place(integer layer, std::string name, bool backward) {
        at_.layer = layer;
        at_.layer_name = std::move(name);
        at_.backward = backward;
    }
    void place_mtp(integer depth, bool backward) { place(-1, text_of("multi-token prediction ", depth), backward); }
    /// Looks at a view; the first number that is not finite becomes the finding.
    template <class E>
    void look(const char* operation, const std::string& name, matrix<E> view, const nn::grouped_rows& groups = {}) {
        if (found_ || view.empty()) return;
        integer first = -1;
        optim::find_non_finite(queue_, view, &first);
        if (first < 0) return;
        found_ = at_;
        found_->operation = operation;
        found_->tensor = name;
        found_->row = first / view.width;
        found_->column = first % view.width;
        found_->value =
            static_cast<double>(static_cast<accumulator_t<std::remove_const_t<E>>>(view(found_->row, found_->column)));
        if (groups.tokens == nullptr) return;
        integer expert = 0;
        while (groups.offsets[expert + 1] <= found_->row) ++expert;
        found_->tensor += text_of(" of expert ", expert);
        found_->row = groups.tokens[found_->row];
    }
    auto looking() {
        return [this](const char* operation, const char* name, auto view, auto... groups) {
            this->look(operation, name, static_cast<matrix<std::remove_pointer_t<decltype(view.data)>>>(view),
                       groups...);
        };
    }

    void forward(const micro_batch& batch) {
        auto& s = memory_.saved;
        const auto& p = memory_.weight_views;
        auto& b = memory_.buffers;
        const auto& in = memory_.inputs;
        inputs_.assign(1, s.embedded);
        ops::embed<T>(queue_, s.embedded, in[0].ids, p.embedding);
        place(-1, "embedding", false);
        looking()("lookup", "embedded", s.embedded);
        model_.each_layer([&](const auto& layer, auto kind, integer i, integer number) {
            if (found_) return;
            const auto at = static_cast<std::size_t>(i);
            arena own = fresh();
            auto kept = plain(layer).keep(own, batch.shape);
            auto work = plain(layer).work(own, batch.shape);
            kept.y = std::get<kind()>(s.blocks)[at].y;
            plain(layer).forward(queue_, batch, std::get<kind()>(p.blocks)[at], std::get<kind()>(b.blocks)[at],
                                 inputs_.back(), kept, work);
            place(number, layer.mlp().name, false);
            plain(layer).each_saved(kept, looking());
            inputs_.push_back(kept.y);
        });
        if (found_) return;
        ops::rms_norm<T>(queue_, s.normed, s.inverse_rms.data, inputs_.back(), p.final_norm.data,
                         model_.of.rms_norm_eps);
        place(-1, "final norm", false);
        looking()("norm", "normed", s.normed);
        for (integer k = 1; k <= model_.of.num_nextn_predict_layers && !found_; ++k) {
            arena own = fresh();
            const micro_batch part = model_.depth_batch(batch, in, k);
            auto kept = plain_mtp().keep(own, part.shape);
            auto work = plain_mtp().work(own, part.shape);
            forward_mtp(part, k, kept, work);
            place_mtp(k, false);
            plain_mtp().each_saved(kept, looking());
        }
        place(-1, "head", false);
        look_at_logits(batch, s.normed, in[0].targets);
        for (integer k = 1; k <= model_.of.num_nextn_predict_layers; ++k)
            look_at_logits(model_.depth_batch(batch, in, k), s.mtp[static_cast<std::size_t>(k - 1)].normed,
                           in[static_cast<std::size_t>(k)].targets);
    }
    void forward_mtp(const micro_batch& part, integer k, auto& kept, auto& work) {
        const auto at = static_cast<std::size_t>(k - 1);
        kept.normed = memory_.saved.mtp[at].normed;
        plain_mtp().forward(queue_, part, memory_.weight_views.mtp[at], memory_.buffers.mtp[at],
                            memory_.weight_views.embedding, memory_.inputs[at + 1].ids,
                            k == 1 ? memory_.saved.normed : memory_.saved.mtp[at - 1].normed, 1, kept, work);
    }
    void look_at_logits(const micro_batch& batch, const_stream x, const std::int32_t* targets) {
        auto& w = memory_.workspace.head;
        for (integer first = 0; first < x.rows && !found_; first += w.rows) {
            const integer count = std::min(w.rows, x.rows - first);
            nn::loss_sums unread;
            model_.head().forward(queue_, batch, const_stream{x.rows_at(first, count)}, memory_.weight_views.head,
                                  targets + first, w, unread);
            looking()("product with the head", "logits", w.logits.rows_at(0, count));
            looking()("cross-entropy", "losses", matrix<double>{w.losses, count, 1});
            if (found_) found_->row += first;
        }
    }

    void backward(const micro_batch& batch, const models::loss_weights& weights) {
        const auto& s = memory_.saved;
        const auto& p = memory_.weight_views;
        auto& g = memory_.gradient_views;
        auto& w = memory_.workspace;
        const auto& in = memory_.inputs;
        const integer depths = model_.of.num_nextn_predict_layers;
        nn::loss_sums unread;
        const auto head = [&](const_stream x, const std::int32_t* targets, double weight, double z, stream dx) {
            if (found_) return;
            model_.head().forward_backward(queue_, batch, x, p.head, targets, weight, z, w.head, dx, g.head, unread);
            place(-1, "head", true);
            looking()("cross-entropy and product with the head", "gradient of normed", dx);
            looking()("product with the head", "gradient of the head", g.head);
        };
        head(s.normed, in[0].targets, weights.token, weights.z, w.dnormed);
        for (std::size_t k = 0; k < static_cast<std::size_t>(depths); ++k)
            head(s.mtp[k].normed, in[k + 1].targets, weights.mtp[k], 0, w.mtp_dnormed[k]);
        for (integer k = depths; k >= 1 && !found_; --k) {
            const auto at = static_cast<std::size_t>(k - 1);
            const stream dprevious = k == 1 ? w.dnormed : w.mtp_dnormed[at - 1];
            arena own = fresh();
            const micro_batch part = model_.depth_batch(batch, in, k);
            auto kept = plain_mtp().keep(own, part.shape);
            auto deferred = plain_mtp().defer(own, part.shape, false);
            auto work = plain_mtp().work(own, part.shape);
            forward_mtp(part, k, kept, work);
            plain_mtp().backward(queue_, part, p.mtp[at], memory_.buffers.mtp[at], in[at + 1].ids, w.mtp_dnormed[at], 1,
                                 kept, deferred, work, dprevious, g.embedding, g.mtp[at]);
            place_mtp(k, true);
            look_at_gradients(plain_mtp(), g.mtp[at], text_of("model.layers.", model_.layers() + k - 1, "."));
            looking()("sum over uses", "gradient of the hidden state", dprevious);
            looking()("lookup", "gradient of the embedding", g.embedding);
        }
        if (found_) return;
        ops::rms_norm_backward<T>(queue_, w.g, false, g.final_norm.data, w.dnormed, inputs_.back(), s.inverse_rms.data,
                                  p.final_norm.data, w.norm_partials);
        place(-1, "final norm", true);
        looking()("norm", "gradient of the gain", g.final_norm);
        looking()("norm", "gradient of the last layer's output", w.g);
        for (integer number = model_.layers() - 1; number >= 0; --number)
            model_.each_layer([&](const auto& layer, auto kind, integer i, integer here) {
                if (here == number && !found_)
                    layer_backward(batch, plain(layer), number, std::get<kind()>(p.blocks)[static_cast<std::size_t>(i)],
                                   std::get<kind()>(memory_.buffers.blocks)[static_cast<std::size_t>(i)],
                                   std::get<kind()>(g.blocks)[static_cast<std::size_t>(i)]);
            });
        if (found_) return;
        ops::embed_backward(queue_, g.embedding, in[0].ids, matrix<const T>{w.g});
        place(-1, "embedding", true);
        looking()("lookup", "gradient of the embedding", g.embedding);
    }
    void layer_backward(const micro_batch& batch, const auto& layer, integer number, const auto& p, auto& b,
                        auto& gradients) {
        const stream g = memory_.workspace.g;
        arena own = fresh();
        auto kept = layer.keep(own, batch.shape);
        auto deferred = layer.defer(own, batch.shape, false);
        auto work = layer.work(own, batch.shape);
        layer.forward(queue_, batch, p, b, inputs_[static_cast<std::size_t>(number)], kept, work);
        layer.backward_input(queue_, batch, p, b, kept, g, deferred, work, &gradients);
        place(number, layer.mlp().name, true);
        look_at_gradients(layer, gradients, text_of("model.layers.", number, "."));
        looking()("sum over uses", "gradient of the input", g);
    }
    /// From the last parameter to the first, which is about the order in which backward makes them.
    void look_at_gradients(const auto& layer, auto& gradients, const std::string& prefix) {
        struct gradient {
            std::string prefix;
            nn::storage facts;
            matrix<A> view;
        };
        std::vector<gradient> all;
        layer.each_parameter(gradients, [&](auto& view, const nn::storage& facts, auto... prefixes) {
            all.push_back({text_of(prefix, prefixes...), facts, view});
        });
        for (std::size_t i = all.size(); i-- > 0 && !found_;) {
            look("gradient of a weight", "", all[i].view);
            if (found_) name_gradient(all[i].prefix, all[i].facts);
        }
    }
    /// Turns a place in a storage into one in the matrix that checkpoints name.
    void name_gradient(const std::string& prefix, const nn::storage& facts) {
        integer& row = facts.vector ? found_->column : found_->row;
        for (const nn::part& part : facts.parts)
            for (integer n = 0; part.name != nullptr && n < part.count; ++n) {
                const integer inside = row - part.first - n * part.step;
                if (inside < 0 || inside >= part.rows) continue;
                row = inside;
                found_->tensor = "gradient of " + numbered_name(prefix + part.name, n);
                return;
            }
    }

    std::string bad_weight() {
        std::string name;
        const auto scan = [&](const auto& all) {
            for (const auto& weight : all) {
                const integer width = static_cast<integer>(weight.shape.back());
                for (std::size_t i = 0; i < weight.numbers.size() && name.empty(); ++i)
                    if (!optim::detail::is_finite(static_cast<A>(weight.numbers[i])))
                        name = text_of(weight.name, '[', static_cast<integer>(i) / width, ", ",
                                       static_cast<integer>(i) % width, ']');
            }
        };
        scan(named_state(engine_, &parameter_view<T, A>::value));
        scan(named_router_biases(engine_));
        return name;
    }
    [[nodiscard]] arena fresh() const { return {own_->data(), own_->size()}; }

    Engine& engine_;
    const typename Engine::transformer& model_;
    planning::rank_memory<typename Engine::transformer>& memory_;
    host::queue& queue_;
    std::optional<host::memory> own_;
    std::vector<stream> inputs_;  // of every layer, and the last one's output
    double unread_loss_ = 0;
    finding at_;
    std::optional<finding> found_;
};

/// Of ranks that do not hold a whole model, or not all of its gradients: repeats the step and looks at the gradients
/// that it leaves.
template <class Engine>
std::optional<finding> look_at_what_is_left(Engine& engine, const batch_view& batch, const step_settings& settings) {
    engine.accumulate(batch, settings);
    std::optional<finding> found;
    each_held_slice(engine, [&](const auto& s) {
        const matrix rows{s.gradients, s.of.rows, s.of.columns};
        integer first = -1;
        optim::find_non_finite(engine.queue(), rows, &first);
        if (found || first < 0) return;
        const integer row = first / rows.width, column = first % rows.width;
        found = finding{.step = engine.steps_done() + 1,
                        .micro_batch = 0,
                        .layer = s.layer,
                        .layer_name = s.layer < 0 ? "ends of the model" : "block",
                        .operation = "gradient of a weight",
                        .backward = true,
                        .tensor = "gradient of " + s.of.name,
                        .row = s.of.row + row,
                        .column = s.of.column + column,
                        .value = static_cast<double>(rows(row, column)),
                        .weight = {}};
    });
    return found;
}

}  // namespace detail

/// Repeats the step that `batch` and `settings` give on the engine's weights, which stay, and finds the first number
/// that is not finite: forward layer by layer, then backward. Nothing if there is none. Overwrites gradients and loads,
/// as a step does; takes memory for one layer beside the engine's. Where ranks split the model, or shard gradients,
/// all call it together, and what is looked at is the gradients. Errors: those of a step.
template <class Engine>
std::optional<finding> diagnose(Engine& engine, const batch_view& batch, const step_settings& settings) {
    if constexpr (!Engine::transformer::split)
        if (engine.shape().shards.zero <= 1) return detail::examination<Engine>{engine}.examine(batch, settings);
    return detail::look_at_what_is_left(engine, batch, settings);
}

/// Returns if loss and gradient norm of the step that gave `seen` are finite. Otherwise saves the batch as `path` and
/// throws an error that says where the step went wrong, and how to have it again. Of several ranks, each saves its part
/// as `path`.rankN; those whose part gave finite numbers wait, and end with the error of one that found the place.
template <class Engine>
void require_finite(Engine& engine, const batch_view& batch, const step_settings& settings, const step_result& seen,
                    const std::string& path) {
    if (std::isfinite(seen.loss) && std::isfinite(seen.gradient_norm)) return;
    const comm::link& ranks = engine.ranks();
    const std::string saved = ranks.size() == 1 ? path : text_of(path, ".rank", ranks.rank());
    save_batch(saved, batch);
    const auto found = diagnose(engine, batch, settings);
    std::int32_t somewhere = found ? 1 : 0;
    ranks.run(comm::all_reduce(&somewhere, 1, comm::reduction::max).from("not finite somewhere"));
    if (!found && somewhere != 0) ranks.run(comm::barrier().from("a rank that found a number that is not finite"));
    fail(found ? describe(*found)
               : text_of("step ", engine.steps_done() + 1, ": found loss ", seen.loss, " and gradient norm ",
                         seen.gradient_norm, ", but only finite numbers when the step was repeated"),
         "; the weights were not moved, the batch is saved as ", saved);
}

}  // namespace fathom::train
