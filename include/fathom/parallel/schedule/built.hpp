// Schedules chosen at start, with the memory of their tables: what a run walks, and what is too large for the compiler.
#pragma once

#include <fathom/parallel/schedule/explain.hpp>
#include <fathom/parallel/schedule/lower.hpp>
#include <fathom/parallel/schedule/prove.hpp>
#include <fathom/parallel/schedule/words.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::schedule {

namespace detail {

/// A schedule's word as numbers.
struct design {
    const char* name;
    int chunks;
    route way;
    bool (*fits)(integer, integer);
    const char* needs;
    void (*write)(writer&);
};
template <class Schedule>
inline constexpr design design_of{Schedule::name,  Schedule::chunks, Schedule::way,
                                  &Schedule::fits, Schedule::needs,  &Schedule::write};

/// Every schedule that has a name; of interleaved 1F1B, the number of chunks is read from the name.
inline constexpr const design* designs[] = {
    &design_of<gpipe>,      &design_of<one_f_one_b>, &design_of<interleaved_one_f_one_b<2>>,
    &design_of<zb_h1>,      &design_of<zb_v>,        &design_of<dual_pipe>,
    &design_of<dual_pipe_v>};

}  // namespace detail

/// A lowered schedule that owns its table.
class built {
  public:
    /// Lowers steps of one's own. Throws `error` where they do not hold, with rank and action.
    built(const schedule::shape& s, std::span<const step> steps, std::string_view name = "a schedule of your own")
        : name_(name), shape_(s) {
        if (!s.sound() || s.ranks > schedule::proof::most_ranks)
            fail(name, ": found ", s.ranks, " ranks, ", s.micro_batches, " micro-batches and ", s.chunks,
                 " chunks, expected at least one of each, at most ", schedule::proof::most_ranks,
                 " ranks, and with route::v or route::two_way two chunks");
        actions_.resize(static_cast<std::size_t>(most_actions(s, static_cast<int>(steps.size()))));
        transfers_.resize(static_cast<std::size_t>(most_transfers(s)));
        begin_.resize(static_cast<std::size_t>(s.ranks) + 1);
        const table lowered = lower(s, steps, {actions_, transfers_, begin_});
        actions_.resize(lowered.actions.size());
        transfers_.resize(lowered.transfers.size());
        proof_ = prove(view());
        if (!proof_.holds()) fail(name, ": ", explain(proof_));
    }

    /// One of the named schedules: built::of<schedule::zb_v>(4, 16). Throws `error` when it does not run with these
    /// sizes.
    template <class Schedule> static built of(int ranks, int micro_batches) {
        return of(detail::design_of<Schedule>, ranks, micro_batches, Schedule::name);
    }

    /// By name: "one_f_one_b", "interleaved_one_f_one_b<4>". Throws `error` for names that are none.
    static built named(std::string_view name, int ranks, int micro_batches) {
        std::string_view stem = name;
        int chunks = 0;
        if (name.size() > 3 && name.ends_with('>') && name[name.size() - 3] == '<') {
            chunks = name[name.size() - 2] - '0';
            stem.remove_suffix(3);
        }
        std::string names;
        for (const detail::design* known : detail::designs) {
            const bool counted = std::string_view{known->name} == "interleaved_one_f_one_b";
            names += text_of(names.empty() ? "" : ", ", known->name, counted ? "<1> to <9>" : "");
            if (stem != known->name || (stem == name) == counted || (counted && (chunks < 1 || chunks > 9))) continue;
            detail::design chosen = *known;
            if (counted) chosen.chunks = chunks;
            return of(chosen, ranks, micro_batches, name);
        }
        fail("schedule: found \"", name, "\", expected one of ", names);
    }

    [[nodiscard]] table view() const { return {shape_, actions_, transfers_, begin_}; }
    [[nodiscard]] const schedule::proof& proof() const { return proof_; }
    [[nodiscard]] const std::string& name() const { return name_; }

  private:
    static built of(const detail::design& d, int ranks, int micro_batches, std::string_view name) {
        if (!d.fits(ranks, micro_batches))
            fail(name, ": found ", ranks, " ranks and ", micro_batches, " micro-batches, expected ", d.needs);
        const schedule::shape s{ranks, micro_batches, d.chunks, d.way};
        const auto write = [&](step* room) {
            writer to(s, room);
            for (int rank = 0; rank < ranks; ++rank) {
                to.turn_to(rank);
                d.write(to);
            }
            return static_cast<std::size_t>(to.count());
        };
        std::vector<step> steps(write(nullptr));
        write(steps.data());
        return built{s, steps, name};
    }

    std::string name_;
    schedule::shape shape_;
    std::vector<action> actions_;
    std::vector<transfer> transfers_;
    std::vector<int> begin_;
    schedule::proof proof_;
};

}  // namespace fathom::schedule
