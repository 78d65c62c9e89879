// What the tests of layers share: a micro-batch with its rotary table, parameters and buffers in memory of their own,
// and slopes of whatever a layer declares.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fathom/core/random_stream.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/nn/micro_batch.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/ops/rotary.hpp>
#include <fathom/tensor/arena.hpp>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace fathom::test {

/// An arena of its own, full of NaN: whatever is read before it is written shows.
class block_of_memory {
  public:
    explicit block_of_memory(integer bytes) : numbers_(static_cast<std::size_t>(bytes / 8 + 8)) { poison(); }
    [[nodiscard]] fathom::arena arena() {
        const auto first = reinterpret_cast<std::uintptr_t>(numbers_.data());
        const auto start = (first + 63) / 64 * 64;
        return {reinterpret_cast<std::byte*>(start), static_cast<integer>(numbers_.size() * 8 - (start - first))};
    }
    void poison() { numbers_.assign(numbers_.size(), std::numeric_limits<double>::quiet_NaN()); }

  private:
    std::vector<double> numbers_;
};

/// Memory that carve(arena) asks for, and what it carved.
template <class Carve> class carved {
  public:
    explicit carved(Carve carve)
        : memory_(bytes(carve)), pieces_([&] {
              arena own = memory_.arena();
              return carve(own);
          }()) {}
    auto& operator*() { return pieces_; }
    auto* operator->() { return &pieces_; }
    void poison() { memory_.poison(); }

  private:
    static integer bytes(Carve& carve) {
        arena counted;
        carve(counted);
        return counted.peak();
    }
    block_of_memory memory_;
    decltype(std::declval<Carve>()(std::declval<arena&>())) pieces_;
};

/// The numbers behind the views of a layer's parameters, by name.
template <class E> struct parameter_numbers {
    struct entry {
        std::string name;
        std::vector<E> numbers;
        nn::initial start;
    };
    std::vector<std::unique_ptr<entry>> all;

    /// Gives every view of `views` numbers: normal ones times `size`, gains around one; or zeros when size is 0.
    template <class Layer, class Views> void bind(const Layer& layer, Views& views, double size, std::uint64_t seed) {
        layer.each_parameter(views, [&](auto& view, const nn::storage& facts, auto... prefixes) {
            const random_stream source{seed, all.size()};
            auto& own = *all.emplace_back(std::make_unique<entry>());
            own = {text(prefixes..., facts.parts[0].name), std::vector<E>(static_cast<std::size_t>(facts.size())),
                   facts.start};
            for (std::size_t i = 0; i < own.numbers.size() && size != 0; ++i)
                own.numbers[i] = static_cast<E>((facts.start == nn::initial::one ? 1 : 0) + size * source.normal(i));
            using matrix_type = matrix<E>;
            view = facts.vector ? vector_view(own.numbers.data(), facts.rows)
                                : matrix_type{own.numbers.data(), facts.rows, facts.width};
        });
    }
    [[nodiscard]] bool same_bits(const parameter_numbers& other) const {
        bool same = all.size() == other.all.size() && !all.empty();
        for (std::size_t i = 0; same && i < all.size(); ++i)
            same = all[i]->numbers.size() == other.all[i]->numbers.size() &&
                   std::memcmp(all[i]->numbers.data(), other.all[i]->numbers.data(),
                               all[i]->numbers.size() * sizeof(E)) == 0;
        return same;
    }

  private:
    static std::string text(auto... parts) {
        std::string all_parts;
        ((all_parts += parts), ...);
        return all_parts;
    }
};

/// `rows` x `width` normal numbers.
template <class T> struct drawn {
    std::vector<T> numbers;
    matrix<T> view;
    drawn(integer rows, integer width, std::uint64_t seed, double size = 1)
        : numbers(static_cast<std::size_t>(rows * width)), view(numbers.data(), rows, width) {
        const random_stream source{seed, 1000};
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<T>(size * source.normal(i));
    }
};

/// Two sequences, the second in two documents.
template <class A> struct small_batch {
    nn::extents shape;
    std::vector<std::int32_t> positions, starts;
    std::vector<A> cosines, sines;
    double balance_loss = 0;
    nn::micro_batch<A> view;

    explicit small_batch(const ops::rope_facts& rope, double balance_weight = 0, integer length = 6)
        : shape{2, length}, cosines(static_cast<std::size_t>(length * rope.dim / 2)), sines(cosines.size()) {
        for (integer i = 0; i < 2 * length; ++i) {
            const integer at = i % length, start = i >= length && at >= 3 ? 3 : 0;
            starts.push_back(static_cast<std::int32_t>(start));
            positions.push_back(static_cast<std::int32_t>(at - start));
        }
        const matrix<A> cosine_table{cosines.data(), length, rope.dim / 2},
            sine_table{sines.data(), length, rope.dim / 2};
        ops::rope_table<A>(rope, cosine_table, sine_table);
        view = {.shape = shape,
                .positions = positions.data(),
                .starts = starts.data(),
                .cosines = cosine_table,
                .sines = sine_table,
                .balance_weight = balance_weight,
                .balance_loss = &balance_loss};
    }
    small_batch(const small_batch&) = delete;
    small_batch& operator=(const small_batch&) = delete;
};

/// Compares gradients with central differences of loss() at up to `most` places of the numbers, spread evenly.
template <class Loss>
void check_slopes(const std::string& name, std::vector<double>& numbers, const double* gradients, Loss&& loss,
                  integer most = 24) {
    double largest = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) largest = std::max(largest, std::fabs(gradients[i]));
    const std::size_t stride = std::max<std::size_t>(1, numbers.size() / static_cast<std::size_t>(most));
    for (std::size_t i = 0; i < numbers.size(); i += stride) {
        constexpr double step = 1e-5;
        const double held = numbers[i];
        numbers[i] = held + step;
        const double above = loss();
        numbers[i] = held - step;
        const double below = loss();
        numbers[i] = held;
        INFO(name, " at ", i, ": gradient ", gradients[i], ", slope ", (above - below) / (2 * step));
        CHECK(std::fabs(gradients[i] - (above - below) / (2 * step)) <= 1e-7 * std::max(largest, 1e-2));
    }
}

}  // namespace fathom::test
