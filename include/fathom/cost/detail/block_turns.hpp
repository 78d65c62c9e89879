// How often blocks that keep shards only are gathered and scattered in a step: the turns that they take in their rooms.
#pragma once

#include <array>
#include <fathom/models/held_stages.hpp>
#include <fathom/parallel/schedule/table.hpp>
#include <fathom/recipe/flat_layout.hpp>

namespace fathom::detail {

/// Walks a rank's actions as train::block_traffic sees them, and counts by kind of block.
class block_turns {
  public:
    struct counts {
        integer gathers = 0;
        integer scatters = 0;        // of all gradients that are kept as shards
        integer early_scatters = 0;  // of experts' alone
    };
    constexpr block_turns(const models::held_stages& held, integer blocks, const planning::sharding& how)
        : held_(held), blocks_(blocks), how_(how), rooms_(0) {
        for (integer number = 0; number < blocks_; ++number) rooms_ += is_here(number) ? 1 : 0;
        rooms_ = rooms_ > planning::flat_sizes::most_rooms ? planning::flat_sizes::most_rooms : 0;
    }

    /// Whether blocks take turns at all: few ones stay whole.
    [[nodiscard]] constexpr bool any() const { return rooms_ > 0; }

    /// call(number, counts) is told of every turn of a step; call.has_experts(number) says whether a block has any.
    template <class Call> constexpr void walk(const schedule::table& t, int rank, Call&& call) {
        bool apart = false;
        for (const schedule::action& a : t.of(rank)) apart = apart || a.what == schedule::work::backward_weight;
        for (const schedule::action& a : t.of(rank)) {
            if (a.has_forward()) each(a.chunk, false, [&](integer number) { needs(number, false, call); });
            if (a.has_backward())
                each(a.chunk_back(), true, [&](integer number) {
                    needs(number, true, call);
                    begins(number, apart, call);
                    if (!apart) send(room_of(gradients_, number), call);
                });
            if (a.has_weight() && apart)
                each(a.chunk_back(), true, [&](integer number) {
                    begins(number, false, call);
                    send(room_of(gradients_, number), call);
                });
        }
        for (room& r : gradients_) send(r, call);
    }
    /// The same of a whole model, micro-batch after micro-batch.
    template <class Call> constexpr void walk(integer micro_batches, Call&& call) {
        for (integer m = 0; m < micro_batches; ++m) {
            each(0, false, [&](integer number) { needs(number, false, call); });
            each(0, true, [&](integer number) {
                needs(number, true, call);
                begins(number, false, call);
                send(room_of(gradients_, number), call);
            });
        }
        for (room& r : gradients_) send(r, call);
    }

  private:
    struct room {
        integer of = -1;
        bool open = false, early = false;
    };
    using rooms = std::array<room, planning::flat_sizes::most_rooms>;

    [[nodiscard]] constexpr models::stage stage_of(integer chunk) const { return held_.part(chunk, 0, blocks_); }
    [[nodiscard]] constexpr bool is_here(integer number) const {
        for (integer c = 0; c < held_.count; ++c)
            if (const models::stage s = stage_of(c); number >= s.first && number < s.first + s.count) return true;
        return false;
    }
    /// Blocks take rooms in turn, in the order of layers.
    [[nodiscard]] constexpr room& room_of(rooms& of, integer number) const {
        integer before = 0;
        for (integer c = 0; c < held_.count; ++c)
            if (const models::stage s = stage_of(c); number > s.first)
                before += number < s.first + s.count ? number - s.first : s.count;
        return of[static_cast<std::size_t>(before % rooms_)];
    }
    template <class Call> constexpr void each(integer chunk, bool backward, Call&& call) const {
        const models::stage s = stage_of(chunk);
        for (integer i = 0; i < s.count; ++i) call(s.first + (backward ? s.count - 1 - i : i));
    }
    template <class Call> constexpr void needs(integer number, bool backward, Call& call) {
        if (how_.zero < 3) return;
        bring(number, call);
        if (const integer next = number + (backward ? -1 : 1); is_here(next)) bring(next, call);
    }
    template <class Call> constexpr void bring(integer number, Call& call) {
        room& r = room_of(weights_, number);
        if (r.of == number) return;
        r.of = number;
        call(number, counts{.gathers = 1});
    }
    template <class Call> constexpr void begins(integer number, bool early, Call& call) {
        if (early && !(how_.shards_gradients(planning::copies::experts) && call.has_experts(number))) return;
        room& r = room_of(gradients_, number);
        if (r.of != number || !r.open) {
            send(r, call);
            r = {number, true, early};
        }
        r.early = r.early && early;
    }
    template <class Call> constexpr void send(room& r, Call& call) const {
        if (!r.open) return;
        r.open = false;
        call(r.of, r.early ? counts{.early_scatters = 1} : counts{.scatters = 1});
    }

    const models::held_stages& held_;
    integer blocks_;
    const planning::sharding& how_;
    integer rooms_;
    rooms weights_{}, gradients_{};
};

}  // namespace fathom::detail
