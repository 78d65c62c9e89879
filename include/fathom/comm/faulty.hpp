// A communicator that misbehaves on purpose and by seed, so that hangs and races are found where they can be repeated.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/comm/communicator.hpp>
#include <fathom/core/error.hpp>
#include <fathom/core/random_stream.hpp>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace fathom::comm {

/// What goes wrong on one rank. Operations are counted from 0 over all faulty communicators of the rank.
struct faults {
    std::uint64_t seed = 0;
    double delay = 0;      // the chance of a delay before, in and after an operation
    double reorder = 0;    // the chance that an operation is issued only after the next one, where that is allowed
    integer drop_at = -1;  // this operation is never entered: others wait for this rank
    integer kill_at = -1;  // in this operation the rank throws, with the operation under way
};

namespace detail {

/// An operation that a faulty communicator was asked for, and may not have issued.
struct faulty_operation {
    virtual ~faulty_operation() = default;
    virtual void issue() = 0;
    request what;
    const void* communicator = nullptr;
    bool dropped = false;

    /// Whether programs may rely on neither order of the two: which collectives come first, and which of two messages
    /// from one rank to another, is part of a program.
    [[nodiscard]] bool independent_of(const faulty_operation& other) const {
        if (communicator != other.communicator) return true;
        if (what.kind != operation::exchange || other.what.kind != operation::exchange)
            return what.kind == operation::exchange || other.what.kind == operation::exchange;
        return std::none_of(what.messages.begin(), what.messages.end(), [&](const message& mine) {
            return std::any_of(other.what.messages.begin(), other.what.messages.end(), [&](const message& theirs) {
                return mine.peer == theirs.peer && mine.sends == theirs.sends;
            });
        });
    }
};

/// The faults of one rank as they happen.
class faulty_rank {
  public:
    faulty_rank(const faults& plan, integer rank)
        : plan_(plan), rank_(rank), draws_{plan.seed, static_cast<std::uint64_t>(rank)} {}

    void start(const std::shared_ptr<faulty_operation>& next) {
        const integer number = operations_++;
        delay();
        if (number == plan_.drop_at) {
            next->dropped = true;
        } else if (held_ != nullptr) {
            const auto before = std::exchange(held_, nullptr);
            const bool swaps = before->independent_of(*next);
            (swaps ? next : before)->issue();
            (swaps ? before : next)->issue();
        } else if (draw() < plan_.reorder) {
            held_ = next;
        } else {
            next->issue();
        }
        if (number == plan_.kill_at) {
            issue_held();
            fail("rank ", rank_, " was killed in ", name_of(next->what.kind), ", its operation ", number);
        }
    }
    /// Before this rank waits: what it holds back could be what others wait for.
    void issue_held() {
        if (const auto held = std::exchange(held_, nullptr)) held->issue();
    }
    void forget(const faulty_operation* gone) {
        if (held_.get() == gone) held_ = nullptr;
    }
    void delay() {
        if (draw() >= plan_.delay) return;
        for (int yields = static_cast<int>(draw() * 32); yields > 0; --yields) std::this_thread::yield();
    }

  private:
    double draw() { return draws_.uniform(drawn_++); }

    faults plan_;
    integer rank_;
    random_stream draws_;
    std::uint64_t drawn_ = 0;
    integer operations_ = 0;
    std::shared_ptr<faulty_operation> held_;
};

}  // namespace detail

/// Wraps a communicator of any kind; keeps the promise of `communicator`, but for the faults asked for. What is split
/// off shares the faults of its rank.
template <communicator Inner> class faulty {
    struct issued : detail::faulty_operation {
        void issue() override { under_way.emplace(inner->start(what)); }
        std::shared_ptr<Inner> inner;
        std::optional<handle_of<Inner>> under_way;
    };

  public:
    class handle {
      public:
        handle(std::shared_ptr<detail::faulty_rank> rank, std::shared_ptr<issued> op)
            : rank_(std::move(rank)), operation_(std::move(op)) {}
        handle(handle&&) noexcept = default;
        handle& operator=(handle&&) noexcept = default;
        ~handle() {
            if (operation_ != nullptr) rank_->forget(operation_.get());
        }
        void wait() {
            rank_->issue_held();
            rank_->delay();
            if (!operation_->dropped) operation_->under_way->wait();
            rank_->delay();
        }
        [[nodiscard]] bool done() {
            rank_->issue_held();
            return operation_->dropped || operation_->under_way->done();
        }

      private:
        std::shared_ptr<detail::faulty_rank> rank_;
        std::shared_ptr<issued> operation_;
    };

    faulty(Inner inner, const faults& plan)
        : inner_(std::make_shared<Inner>(std::move(inner))),
          rank_(std::make_shared<detail::faulty_rank>(plan, inner_->rank())) {}

    [[nodiscard]] integer rank() const { return inner_->rank(); }
    [[nodiscard]] integer size() const { return inner_->size(); }
    [[nodiscard]] const char* name() const { return inner_->name(); }
    [[nodiscard]] const flight_recorder& recorder() const { return inner_->recorder(); }

    [[nodiscard]] handle start(const request& what) {
        auto next = std::make_shared<issued>();
        next->what = what;
        next->communicator = inner_.get();
        next->inner = inner_;
        handle under_way{rank_, next};
        rank_->start(next);
        return under_way;
    }
    void run(const request& what) { start(what).wait(); }
    [[nodiscard]] faulty split(integer colour, integer key, const char* name) {
        rank_->issue_held();
        return {std::make_shared<Inner>(inner_->split(colour, key, name)), rank_};
    }

  private:
    faulty(std::shared_ptr<Inner> inner, std::shared_ptr<detail::faulty_rank> rank)
        : inner_(std::move(inner)), rank_(std::move(rank)) {}

    std::shared_ptr<Inner> inner_;
    std::shared_ptr<detail::faulty_rank> rank_;
};

}  // namespace fathom::comm
