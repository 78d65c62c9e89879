// Batches drawn from a seed, and gradients compared bit for bit.
#pragma once

#include <cstring>
#include <fathom/core/random_stream.hpp>
#include <fathom/train/batch_view.hpp>
#include <vector>

namespace fathom::parity_test {

/// Random tokens, each the target of the one before it; some targets are ignored, more in later sequences.
struct drawn_batch {
    integer sequences, length;
    std::vector<std::int32_t> tokens, targets;

    drawn_batch(integer rows, integer columns, integer vocab_size, std::uint64_t seed)
        : sequences(rows), length(columns), tokens(size()), targets(size(), train::ignored) {
        const random_stream source{seed, 0};
        for (std::size_t i = 0; i < size(); ++i)
            tokens[i] = static_cast<std::int32_t>(source.uniform(i) * static_cast<double>(vocab_size));
        for (integer r = 0; r < rows; ++r)
            for (integer c = 0; c + 1 < columns; ++c) {
                const auto i = static_cast<std::size_t>(r * columns + c);
                if (source.uniform(size() + i) * static_cast<double>(rows + 1) > static_cast<double>(r))
                    targets[i] = tokens[i + 1];
            }
    }
    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(sequences * length); }
    [[nodiscard]] train::batch_view view() const { return {sequences, length, tokens.data(), targets.data()}; }
};

/// The numbers of many tensors, one after the other.
template <class Tensors> auto flattened(const Tensors& tensors) {
    std::vector<std::remove_cvref_t<decltype(tensors[0].numbers[0])>> all;
    for (const auto& t : tensors) all.insert(all.end(), t.numbers.begin(), t.numbers.end());
    return all;
}

template <class E> bool same_bits(const std::vector<E>& a, const std::vector<E>& b) {
    return a.size() == b.size() && !a.empty() && std::memcmp(a.data(), b.data(), a.size() * sizeof(E)) == 0;
}

}  // namespace fathom::parity_test
