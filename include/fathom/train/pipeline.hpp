// Walks a pipeline schedule on one rank: computes what the table says and exchanges with the neighbouring stages.
#pragma once

#include <fathom/comm/exchange.hpp>
#include <fathom/comm/mesh_links.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/ops/elementwise.hpp>
#include <fathom/parallel/schedule/built.hpp>
#include <fathom/recipe/rank_memory.hpp>
#include <fathom/train/shared_state.hpp>
#include <functional>
#include <utility>
#include <vector>

namespace fathom::train {

/// One rank's stages of a split model, on that rank's memory.
template <class Transformer> class pipeline {
    using T = typename Transformer::number;
    using A = typename Transformer::A;
    using batch_type = nn::micro_batch<A>;
    using stream = typename Transformer::stream;

  public:
    /// `apart`: weights' gradients are a step of their own. `whole`: the shape for which the memory was carved.
    pipeline(const Transformer& model, host::queue& queue, planning::rank_memory<Transformer>& memory, arena block,
             const comm::mesh_links& links, nn::extents whole, bool apart, shared_state<Transformer>& state)
        : model_(model),
          queue_(queue),
          memory_(memory),
          block_(block),
          links_(links),
          state_(state),
          now_(whole),
          apart_(apart) {}

    /// Told what a chunk keeps of a micro-batch after each forward of a step.
    using forward_watch =
        std::function<void(const batch_type&, int micro_batch, int chunk, const typename Transformer::saved&)>;
    void watch_forward(forward_watch watch) { watch_ = std::move(watch); }

    /// Forward and backward of the micro-batches of a table. load(micro_batch) fills memory.inputs and tells of it.
    template <class Load>
    void step(const schedule::table& t, Load&& load, const models::loss_weights& weights, models::loss_terms& terms) {
        const int rank = static_cast<int>(links_.at.pp);
        begin();
        left_.assign(memory_.chunks.size(), 0);
        for (const schedule::action& a : t.of(rank))
            if (a.has_weight()) ++left_[static_cast<std::size_t>(a.chunk_back())];
        for (const schedule::action& a : t.of(rank)) {
            if (a.what == schedule::work::exchange) exchange(t, a, load);
            if (a.has_forward()) {
                const batch_type batch = Transformer::weighed(load(a.micro_batch), weights, terms);
                forward(t.shape, batch, a.chunk, a.micro_batch);
            }
            if (a.has_weight()) state_.traffic().set_last(--left_[static_cast<std::size_t>(a.chunk_back())] == 0);
            if (a.has_backward()) {
                const batch_type batch = Transformer::weighed(load(a.micro_batch_back()), weights, terms);
                backward(t.shape, batch, a.chunk_back(), a.micro_batch_back(), weights, terms);
            }
            if (a.has_weight()) backward_weight(a.chunk_back(), a.micro_batch_back());
        }
    }

    /// Forward of `micro_batches`, one after another down all stages, with their losses and nothing else.
    template <class Load>
    void evaluate(schedule::shape shape, int micro_batches, Load&& load, models::loss_terms& terms) {
        const int rank = static_cast<int>(links_.at.pp);
        begin();
        shape.micro_batches = 2;  // of which the first goes down; so do all
        for (int m = 0; m < micro_batches; ++m)
            for (int s = 0; s < shape.stages(); ++s) {
                if (shape.rank_of(s, 0) != rank) continue;
                const int chunk = shape.chunk_of(s, 0);
                const batch_type batch = load(m);
                work_on(batch.shape);
                auto& slot = take(chunk, m, batch.shape);
                if (s > 0 && shape.rank_of(s - 1, 0) != rank) {
                    messages_.clear();
                    receive(shape.rank_of(s - 1, 0), slot.of.embedded);
                    send_all("evaluation");
                }
                hand_on(shape, chunk, m, slot);
                model_.evaluate(queue_, batch, memory_.inputs, memory_.weight_views, memory_.buffers, slot.of,
                                memory_.workspace, terms, chunk);
                if (s + 1 < shape.stages() && shape.rank_of(s + 1, 0) != rank) {
                    messages_.clear();
                    send(shape.rank_of(s + 1, 0), model_.given(slot.of, chunk));
                    send_all("evaluation");
                }
                if (shape.chunks == 1 || s + 1 == shape.stages() || !planning::after_is_here(shape, rank, chunk))
                    leave(chunk, m);
                if (planning::before_is_here(shape, rank, chunk)) leave(shape.chunk_of(s - 1, 0), m);
            }
    }

  private:
    /// Which micro-batch has a piece of memory; -1: none.
    struct tenants {
        std::vector<int> of;
        void clear(std::size_t count) { of.assign(count, -1); }
        [[nodiscard]] std::size_t find(int who) const {
            for (std::size_t i = 0; i < of.size(); ++i)
                if (of[i] == who) return i;
            fail("pipeline: found no room for micro-batch ", who, " among ", of.size(),
                 ", expected the room that the schedule's plan has");
        }
        std::size_t enter(int who) {
            const std::size_t at = find(-1);
            of[at] = who;
            return at;
        }
        void leave(int who) { of[find(who)] = -1; }
    };

    void begin() {
        const std::size_t chunks = memory_.chunks.size();
        kept_.resize(chunks);
        deferred_.resize(chunks);
        for (std::size_t c = 0; c < chunks; ++c) {
            kept_[c].clear(memory_.chunks[c].kept.size());
            deferred_[c].clear(memory_.chunks[c].deferred.size());
        }
        pipes_.clear(memory_.pipes.size());
    }
    /// Gradients on their way are known by their micro-batch and the chunk that reads them.
    static int pipe_key(int chunk, int micro_batch) {
        return micro_batch * static_cast<int>(planning::stage_slots::most_chunks) + chunk;
    }

    auto& slot_of(int chunk, int micro_batch) {
        const auto c = static_cast<std::size_t>(chunk);
        return memory_.chunks[c].kept[kept_[c].find(micro_batch)];
    }
    auto& take(int chunk, int micro_batch, nn::extents shape) {
        const auto c = static_cast<std::size_t>(chunk);
        auto& slot = memory_.chunks[c].kept[kept_[c].enter(micro_batch)];
        fit(slot, shape, [&](arena& pieces) { model_.keep(pieces, shape, &slot.of, chunk); });
        return slot;
    }
    /// Carves pieces anew where they lie, if they are of another shape.
    template <class Slot, class Carve> void fit(Slot& slot, nn::extents shape, Carve&& carve) {
        if (slot.shape.sequences == shape.sequences && slot.shape.length == shape.length) return;
        arena pieces = block_;
        pieces.rewind(slot.at);
        carve(pieces);
        slot.shape = shape;
    }
    /// The workspace of a shape.
    void work_on(nn::extents shape) {
        planning::shaped<int> workspace{memory_.workspace_at, now_, 0};
        fit(workspace, shape, [&](arena& pieces) { model_.work(pieces, shape, &memory_.workspace); });
        now_ = shape;
    }
    void leave(int chunk, int micro_batch) { kept_[static_cast<std::size_t>(chunk)].leave(micro_batch); }
    /// What the stage before, on this rank itself, gave.
    template <class Slot> void hand_on(const schedule::shape& shape, int chunk, int micro_batch, Slot& to) {
        const int rank = static_cast<int>(links_.at.pp);
        if (!planning::before_is_here(shape, rank, chunk)) return;
        const int from = shape.chunk_of(shape.stage_of(rank, chunk) - 1, 0);
        ops::copy(queue_, to.of.embedded, model_.given(slot_of(from, micro_batch).of, from));
    }
    stream pipe(std::size_t at, nn::extents shape) const {
        const stream& whole = memory_.pipes[at];
        return {matrix<T>{whole.data, share_of{shape.tokens(), links_.of.tp, links_.at.tp}.count, whole.width}};
    }

    template <class Load> void exchange(const schedule::table& t, const schedule::action& a, Load& load) {
        messages_.clear();
        for (const schedule::transfer& s : t.sends(a)) {
            if (s.what == schedule::cargo::activation)
                send(s.peer, model_.given(slot_of(s.chunk, s.micro_batch).of, s.chunk));
            else
                send(s.peer, pipe(pipes_.find(pipe_key(s.chunk, s.micro_batch)), load(s.micro_batch).shape));
        }
        for (const schedule::transfer& r : t.receives(a)) {
            const nn::extents shape = load(r.micro_batch).shape;
            if (r.what == schedule::cargo::activation)
                receive(r.peer, take(r.chunk, r.micro_batch, shape).of.embedded);
            else
                receive(r.peer, pipe(pipes_.enter(pipe_key(r.chunk, r.micro_batch)), shape));
        }
        send_all("between stages");
        for (const schedule::transfer& s : t.sends(a))
            if (s.what == schedule::cargo::gradient) pipes_.leave(pipe_key(s.chunk, s.micro_batch));
    }
    void send(integer peer, tensor<const T, axis::tokens, axis::hidden> x) {
        if (x.size() > 0) messages_.push_back(comm::send_to(peer, x.data, x.size()));
    }
    void receive(integer peer, stream x) {
        if (x.size() > 0) messages_.push_back(comm::receive_from(peer, x.data, x.size()));
    }
    void send_all(const char* label) {
        if (!messages_.empty()) links_.pipeline.run(comm::exchange(messages_).from(label));
    }

    void forward(const schedule::shape& shape, const batch_type& batch, int chunk, int micro_batch) {
        const int rank = static_cast<int>(links_.at.pp);
        work_on(batch.shape);
        const bool from_here = shape.stage_of(rank, chunk) == 0 || planning::before_is_here(shape, rank, chunk);
        auto& slot = from_here ? take(chunk, micro_batch, batch.shape) : slot_of(chunk, micro_batch);
        hand_on(shape, chunk, micro_batch, slot);
        model_.forward(queue_, batch, memory_.inputs, memory_.weight_views, memory_.buffers, slot.of, memory_.workspace,
                       chunk);
        if (watch_) watch_(batch, micro_batch, chunk, slot.of);
    }
    void backward(const schedule::shape& shape, const batch_type& batch, int chunk, int micro_batch,
                  const models::loss_weights& weights, models::loss_terms& terms) {
        const int rank = static_cast<int>(links_.at.pp), stage = shape.stage_of(rank, chunk);
        const auto c = static_cast<std::size_t>(chunk);
        const int key = pipe_key(chunk, micro_batch);
        const std::size_t at = stage + 1 == shape.stages() ? pipes_.enter(key) : pipes_.find(key);
        auto& pieces = memory_.chunks[c].deferred[deferred_[c].enter(micro_batch)];
        work_on(batch.shape);
        fit(pieces, batch.shape, [&](arena& to) { model_.defer(to, batch.shape, &pieces.of, chunk, apart_); });
        model_.backward(queue_, batch, memory_.inputs, memory_.weight_views, memory_.buffers,
                        slot_of(chunk, micro_batch).of, pieces.of, memory_.workspace, pipe(at, batch.shape), weights,
                        memory_.gradient_views, terms, chunk, apart_);
        if (stage == 0)
            pipes_.leave(key);
        else if (planning::before_is_here(shape, rank, chunk))
            pipes_.of[at] = pipe_key(shape.chunk_of(stage - 1, 0), micro_batch);
    }
    void backward_weight(int chunk, int micro_batch) {
        const auto c = static_cast<std::size_t>(chunk);
        if (apart_)
            model_.backward_weight(queue_, slot_of(chunk, micro_batch).of,
                                   memory_.chunks[c].deferred[deferred_[c].find(micro_batch)].of,
                                   memory_.gradient_views, chunk, state_.watch());
        deferred_[c].leave(micro_batch);
        leave(chunk, micro_batch);
    }

    const Transformer& model_;
    host::queue& queue_;
    planning::rank_memory<Transformer>& memory_;
    arena block_;
    const comm::mesh_links& links_;
    shared_state<Transformer>& state_;
    std::vector<tenants> kept_, deferred_;  // by chunk
    std::vector<int> left_;                 // by chunk: weights' gradients that are still to come in a step
    tenants pipes_;
    std::vector<comm::message> messages_;
    forward_watch watch_;
    nn::extents now_;  // of the workspace
    bool apart_;
};

/// The pipeline of a split model; of a whole one, nothing that needs to be compiled.
struct no_pipeline {};
template <class Transformer>
using pipeline_of = std::conditional_t<Transformer::split, pipeline<Transformer>, no_pipeline>;

}  // namespace fathom::train
