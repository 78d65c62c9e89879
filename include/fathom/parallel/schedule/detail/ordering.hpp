// Each rank of a table by itself: nothing is lost, done twice or before what it needs, and what is kept meanwhile.
#pragma once

#include <fathom/parallel/schedule/detail/parts.hpp>
#include <fathom/parallel/schedule/proof.hpp>
#include <fathom/parallel/schedule/table.hpp>

namespace fathom::schedule::detail {

/// Goes over a table once, rank by rank.
class ordering {
  public:
    constexpr ordering(const table& t, const costs& c, int* others)
        : s_(t.shape),
          words_(t.shape, c),
          stages_(words_.stages),
          actions_(t.actions.data()),
          transfers_(t.transfers.data()),
          begin_(t.begin.data()),
          action_count_(static_cast<int>(t.actions.size())),
          transfer_count_(static_cast<int>(t.transfers.size())),
          others_(others),
          seen_room_(s_.keys()),
          tensor_room_(4 * s_.keys()),
          transfer_room_(transfer_count_),
          holder_room_(2 * stages_),
          turn_room_(stages_) {
        for (int rank = 0; rank < s_.ranks; ++rank)
            for (int chunk = 0; chunk < s_.chunks; ++chunk)
                holders_[(s_.way == route::two_way ? chunk * stages_ : 0) + words_.stage_of(rank, chunk)] = rank;
        for (int stage = 0; stage + 1 < stages_; ++stage)
            turns_[stage] = s_.way != route::two_way && holders_[stage] == holders_[stage + 1];
    }

    constexpr proof run() {
        if (!order() || !met()) refine();
        return p_;
    }

  private:
    // What has happened to a micro-batch in a stage so far, in the order of its rank.
    enum : unsigned char { forward_done = 1, input_done = 2, weight_done = 4, activation_here = 8, gradient_here = 16 };

    constexpr bool wrong(problem found, int rank, int index, int chunk, int micro_batch) {
        p_.found = found, p_.rank = rank, p_.action = index < 0 ? -1 : index - begin_[rank], p_.chunk = chunk;
        p_.micro_batch = micro_batch;
        return false;
    }
    constexpr bool wrong_back(problem found, const action& a, int i) {
        return wrong(found, a.rank, i, a.chunk_back(), a.micro_batch_back());
    }

    /// Each rank by itself: nothing before what it needs, nothing twice; and what is alive meanwhile.
    constexpr bool order() {
        scratch<int> channel_room(4 * s_.ranks * s_.ranks), next_room(s_.ranks * s_.chunks);
        channel_ = channel_room.data();
        p_.in_order = true;
        for (int rank = 0; rank < s_.ranks; ++rank) {
            activations_ = deferred_ = kept_ = exchanged_ = 0;
            for (int i = begin_[rank]; i < begin_[rank + 1]; ++i) {
                const action& a = actions_[i];
                if (a.rank != rank) return wrong(problem::foreign, rank, i, a.chunk, a.micro_batch);
                if (a.what == work::exchange ? !exchange(a, i) : !compute(a, i, next_room.data() + rank * s_.chunks))
                    return false;
            }
        }
        return true;
    }

    constexpr bool compute(const action& a, int i, int* next_weight) {
        if (!s_.has(a.rank, a.chunk, a.micro_batch)) return wrong(problem::foreign, a.rank, i, a.chunk, a.micro_batch);
        if (a.what == work::overlapped && !s_.has(a.rank, a.backward_chunk, a.backward_micro_batch))
            return wrong_back(problem::foreign, a, i);
        const parts x = words_.of(a);
        const int stages = stages_;
        if (x.forward >= 0) {
            unsigned char& seen = seen_[x.forward];
            if ((seen & forward_done) != 0 || (x.forward % stages != 0 && (seen & activation_here) == 0))
                return wrong((seen & forward_done) != 0 ? problem::repeated : problem::early, a.rank, i, a.chunk,
                             a.micro_batch);
            seen |= forward_done;
            ++activations_, ++kept_;
            exchanged_ += (x.forward + 1) % stages != 0;
            if (turns_[x.forward % stages]) seen_[x.forward + 1] |= activation_here;
        }
        if (x.back >= 0) {
            unsigned char& seen = seen_[x.back];
            if ((x.input && (seen & input_done) != 0) || (x.weight && (seen & weight_done) != 0))
                return wrong_back(problem::repeated, a, i);
            if (x.input ? (seen & forward_done) == 0 || ((x.back + 1) % stages != 0 && (seen & gradient_here) == 0)
                        : (seen & input_done) == 0)
                return wrong_back(problem::early, a, i);
            seen |= (x.input ? input_done : 0) | (x.weight ? weight_done : 0);
            if (x.input) {
                deferred_ += !x.weight;
                exchanged_ += x.back % stages != 0;
                if (x.back % stages != 0 && turns_[x.back % stages - 1]) seen_[x.back - 1] |= gradient_here;
            }
            if (x.weight) {
                int& next = next_weight[a.what == work::overlapped ? a.backward_chunk : a.chunk];
                if (x.back / stages < next) p_.in_order = false;
                next = x.back / stages + 1;
            }
        }
        if (x.forward >= 0 || x.input) note(a.rank);
        exchanged_ -= (x.forward >= 0 && x.forward % stages != 0) + (x.input && (x.back + 1) % stages != 0);
        activations_ -= x.input;
        kept_ -= x.weight;
        deferred_ -= x.weight && !x.input;
        done_ += (x.forward >= 0) + x.input + x.weight;
        return true;
    }
    constexpr void note(int rank) {
        rank_figures& f = p_.ranks.data()[rank];
        if (activations_ > f.activations) f.activations = activations_;
        if (deferred_ > f.deferred) f.deferred = deferred_;
        if (kept_ > f.kept) f.kept = kept_;
        if (exchanged_ > f.exchanged) f.exchanged = exchanged_;
    }

    constexpr bool exchange(const action& a, int i) {
        if (a.first < 0 || a.sends < 0 || a.receives < 0 || a.first > transfer_count_ - a.sends - a.receives)
            return wrong(problem::foreign, a.rank, i, -1, -1);
        for (int k = 0; k < a.sends + a.receives; ++k)
            if (!order_transfer(a, i, a.first + k, k < a.sends)) return false;
        begun_ += a.sends + a.receives;
        exchanged_ += a.receives;
        note(a.rank);
        exchanged_ -= a.sends;  // what is sent stays until the exchange ends
        return true;
    }

    constexpr bool order_transfer(const action& a, int i, int index, bool send) {
        const transfer& x = transfers_[index];
        const bool forward = x.what == cargo::activation;
        if (x.chunk < 0 || x.chunk >= s_.chunks || x.micro_batch < 0 || x.micro_batch >= s_.micro_batches ||
            (s_.way == route::two_way && x.chunk != static_cast<int>(2 * x.micro_batch >= s_.micro_batches)) ||
            x.peer < 0 || x.peer >= s_.ranks)
            return wrong(problem::foreign, a.rank, i, x.chunk, x.micro_batch);
        const int stage = words_.stage_of(a.rank, x.chunk), other_stage = stage + (send == forward ? 1 : -1);
        if (other_stage < 0 || other_stage >= stages_ || x.peer == a.rank ||
            holders_[(s_.way == route::two_way ? x.chunk * stages_ : 0) + other_stage] != x.peer)
            return wrong(problem::wrong_peer, a.rank, i, x.chunk, x.micro_batch);
        const int key = x.micro_batch * stages_ + stage;
        // A tensor is known by the stage that reads it; its two transfers stand side by side.
        const int tensor = 2 * (key + (send ? other_stage - stage : 0) + (forward ? 0 : words_.keys));
        int &mine = tensors_[tensor + send], other = tensors_[tensor + !send];
        if (mine != 0) return wrong(problem::repeated, a.rank, i, x.chunk, x.micro_batch);
        if (send && (seen_[key] & (forward ? forward_done : input_done)) == 0)
            return wrong(problem::early, a.rank, i, x.chunk, x.micro_batch);
        if (!send) seen_[key] |= forward ? activation_here : gradient_here;
        mine = index + 1;
        // A channel is a sender, a receiver and the kind of cargo: both sides count it in their own order.
        const int channel = send ? a.rank * s_.ranks + x.peer : x.peer * s_.ranks + a.rank;
        places_[index] = channel_[4 * channel + 2 * forward + send]++;
        if (other == 0) {
            others_[index] = -1 - i;  // until the other side comes and finds here where this one is
            return true;
        }
        if (places_[other - 1] != places_[index]) return wrong(problem::crossed, a.rank, i, x.chunk, x.micro_batch);
        others_[index] = -1 - others_[other - 1];
        others_[other - 1] = i;
        met_ += 2;
        return true;
    }

    /// Nothing is lost, and every transfer has its other side.
    constexpr bool met() {
        if (done_ != 3 * words_.keys) return wrong(problem::lost, -1, -1, -1, -1);
        if (met_ == begun_) return true;
        for (int rank = 0; rank < s_.ranks; ++rank)
            for (int i = begin_[rank]; i < begin_[rank + 1]; ++i)
                for (int k = actions_[i].first; k < actions_[i].first + actions_[i].sends + actions_[i].receives; ++k)
                    if (others_[k] < 0)
                        return wrong(problem::unmatched, rank, i, transfers_[k].chunk, transfers_[k].micro_batch);
        return true;
    }

    /// Work that is missing altogether explains the other problems.
    constexpr void refine() {
        if (p_.found == problem::foreign || p_.found == problem::repeated) return;
        scratch<unsigned char> there_room(s_.keys());
        unsigned char* there = there_room.data();
        for (int i = 0; i < action_count_; ++i) {
            const action& a = actions_[i];
            if (a.what == work::exchange || !s_.has(a.rank, a.chunk, a.micro_batch) ||
                !s_.has(a.rank, a.chunk_back(), a.micro_batch_back()))
                continue;
            const parts x = words_.of(a);
            if (x.forward >= 0) there[x.forward] |= forward_done;
            if (x.input) there[x.back] |= input_done;
            if (x.weight) there[x.back] |= weight_done;
        }
        for (int key = 0; key < s_.keys(); ++key)
            if (there[key] != (forward_done | input_done | weight_done)) {
                const int stage = key % s_.stages(), micro_batch = key / s_.stages();
                wrong(problem::lost, s_.rank_of(stage, micro_batch), -1, s_.chunk_of(stage, micro_batch), micro_batch);
                return;
            }
    }

    const shape s_;
    const dictionary words_;
    const int stages_;
    const action* actions_;
    const transfer* transfers_;
    const int* begin_;
    int action_count_, transfer_count_;
    int* others_;  // the action that has the other side of each transfer
    proof p_{};
    int activations_ = 0, deferred_ = 0, kept_ = 0, exchanged_ = 0;  // alive now, see rank_figures
    int done_ = 0, begun_ = 0, met_ = 0;  // parts of computations; transfers, and those that found their other side
    scratch<unsigned char> seen_room_;
    scratch<int> tensor_room_, transfer_room_, holder_room_;
    unsigned char* seen_ = seen_room_.data();
    int* tensors_ = tensor_room_.data();   // receive and send of each tensor, plus 1
    int* places_ = transfer_room_.data();  // of each transfer in its channel
    int* holders_ = holder_room_.data();   // the rank of each stage; of either direction when there are two
    scratch<bool> turn_room_;
    bool* turns_ = turn_room_.data();  // the stage after this one is on the same rank
    int* channel_ = nullptr;
};

}  // namespace fathom::schedule::detail
