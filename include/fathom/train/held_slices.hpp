// What a rank keeps of a run's state, under global names: how layouts read each other's saves.
#pragma once

#include <algorithm>
#include <fathom/checkpoint/slice.hpp>
#include <fathom/train/engine.hpp>
#include <string>
#include <utility>
#include <vector>

namespace fathom::train {

namespace detail {

/// A name with `*` replaced by the number of a matrix in its stack.
inline std::string numbered_name(const std::string& name, integer number) {
    const std::size_t star = name.find('*');
    return star == std::string::npos ? name : name.substr(0, star) + std::to_string(number) + name.substr(star + 1);
}

/// A piece of a matrix that lies in one piece, and where its first number is in the storage.
struct rectangle {
    checkpoint::slice of;
    integer at = 0;
};
/// The rectangles that numbers [first, last) of a storage are of matrix n of one of its parts: a row that is cut at its
/// start, whole rows, a row that is cut at its end.
inline std::vector<rectangle> rectangles_of(const std::string& name, const nn::storage& facts, const nn::part& part,
                                            integer n, integer first, integer last) {
    std::vector<rectangle> all;
    const integer width = facts.width, begin = (part.first + n * part.step) * width;
    const integer end = std::min(last, begin + part.rows * width);
    for (integer at = std::max(first, begin); at < end; at += all.back().of.size()) {
        const integer row = (at - begin) / width, column = (at - begin) % width;
        const bool rows = column == 0 && end - at >= width;
        checkpoint::slice s{name, facts.vector, part.whole_rows(), facts.whole_width()};
        s.row = part.row + row, s.column = facts.column + column;
        s.rows = rows ? (end - at) / width : 1;
        s.columns = rows ? width : std::min(width - column, end - at);
        all.push_back({std::move(s), at});
    }
    return all;
}

}  // namespace detail

/// Numbers of one matrix that a rank keeps, and whether it is the one, of all that keep the same, to write them.
template <class T, class A> struct held_slice {
    checkpoint::slice of;
    integer layer = -1;  // as its storage has it
    T* weights = nullptr;
    // Of an engine that trains; gradients once they are summed over ranks.
    A *gradients = nullptr, *master = nullptr, *first_moment = nullptr, *second_moment = nullptr;
    bool writes = false;
};

/// call(held_slice) for all that this rank keeps of weights and optimizer state, in the order of global indices.
/// All ranks call it together: as engine::each_part it may bring weights of blocks.
template <class Engine, class Call> void each_held_slice(Engine& engine, Call&& call) {
    using slice_type = held_slice<typename Engine::T, typename Engine::A>;
    const planning::flat_layout& layout = engine.memory().layout;
    const bool trains = engine.shape().trains;
    std::size_t storage = 0;
    bool first = true;
    engine.each_part([&](const auto& p, const nn::part& part) {
        if (p.part == 0 && !std::exchange(first, false)) ++storage;
        const planning::placed_storage& placed = layout.storages[storage];
        const planning::bucket& bucket = layout.buckets[static_cast<std::size_t>(placed.bucket)];
        const auto held = engine.state().state_of(bucket);
        const integer begin = held.first - placed.at;
        for (integer n = 0; n < part.count; ++n) {
            const integer number = part.number + n;
            slice_type s;
            s.layer = p.storage.layer;
            s.writes = engine.state().writes(bucket, part, p.number + number);
            for (detail::rectangle& r : detail::rectangles_of(detail::numbered_name(p.name, number), p.storage, part, n,
                                                              begin, begin + held.count)) {
                const integer offset = r.at - begin;
                s.of = std::move(r.of);
                s.weights = held.weights + offset;
                if (trains) {
                    s.gradients = held.gradients + offset;
                    s.master = held.master + offset;
                    s.first_moment = held.first_moment + offset;
                    s.second_moment = held.second_moment + offset;
                }
                call(std::as_const(s));
            }
        }
    });
}

}  // namespace fathom::train
