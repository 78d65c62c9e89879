// Texts from a model: prompts are read into caches in pieces, then every text grows by one token a step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/device/host/memory.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/models/decoder.hpp>
#include <fathom/train/sampling.hpp>
#include <span>
#include <vector>

namespace fathom::train {

/// How texts go on and when they end.
struct generation_options {
    index most_tokens = 256;  // new ones of a text; it also ends where the generator's length ends
    sampling how{};
    std::vector<std::int32_t> end_tokens{};  // the first that is drawn ends the text and is its last token
};

/// Generates with the weights of an engine (one that trains, or one of recipe::rank_shape{.trains = false}), which must
/// outlive it; weights that move between two calls are seen by the next. Its memory is one arena of exactly
/// `generator::bytes`, from which all comes that grows with the model or the texts.
template <class Engine> class generator {
  public:
    using T = typename Engine::T;
    using A = typename Engine::A;
    using transformer = typename Engine::transformer;

    /// Tokens of a prompt that are read at once at most.
    static constexpr index piece = 64;

    /// For `sequences` texts of at most `length` tokens, prompts included. Errors: no text, or a length that the model
    /// has no positions for.
    generator(Engine& engine, index sequences, index length)
        : engine_(engine),
          shape_(shape_of(sequences, length, engine.queue().workers_count())),
          decoder_{engine.model()},
          block_(checked_bytes(engine.model(), shape_)),
          queue_(engine.queue()) {
        arena all{block_.data(), block_.size()};
        candidates_ = {all.take<candidate>(decoder_.of.of.vocab_size),
                       static_cast<std::size_t>(decoder_.of.of.vocab_size)};
        decoder_.carve(all, shape_, &memory_);
        if (all.peak() != block_.size())
            fail("generate: carved ", all.peak(), " bytes of an arena of ", block_.size(), ", expected all of it");
        rows_ = shape_.rows;
        queue_ = queue_.with_scratch(memory_.scratch, memory_.scratch_bytes);
        lengths_.resize(static_cast<std::size_t>(sequences));
    }

    /// Bytes of the arena.
    static constexpr index bytes(const transformer& model, index sequences, index length, index workers) {
        return bytes_of(model, shape_of(sequences, length, workers));
    }
    [[nodiscard]] index arena_bytes() const { return block_.size(); }
    /// Tokens that a text has.
    [[nodiscard]] index length(index sequence = 0) const { return lengths_[static_cast<std::size_t>(sequence)]; }
    /// Forgets a text.
    void clear(index sequence = 0) { lengths_[static_cast<std::size_t>(sequence)] = 0; }

    /// Adds tokens to a text; the logits after the last of them, valid until the next call. Errors: no token, an id
    /// outside the vocabulary, more tokens than there is room for.
    std::span<const A> append(std::span<const std::int32_t> tokens, index sequence = 0) {
        index& used = lengths_[static_cast<std::size_t>(sequence)];
        const auto count = static_cast<index>(tokens.size());
        if (count < 1 || used + count > shape_.capacity)
            fail("generate: found ", count, " tokens for a text of ", used, ", expected 1 to ", shape_.capacity - used,
                 " (of ", shape_.capacity, " in all)");
        for (index i = 0; i < count; ++i)
            if (tokens[static_cast<std::size_t>(i)] < 0 ||
                tokens[static_cast<std::size_t>(i)] >= decoder_.of.of.vocab_size)
                fail("generate: token ", i, " of the prompt is ", tokens[static_cast<std::size_t>(i)],
                     ", expected an id in [0, ", decoder_.of.of.vocab_size, ")");
        for (index first = 0; first < count;) {
            const index rows = std::min(piece, count - first);
            for (index r = 0; r < rows; ++r) put(r, tokens[static_cast<std::size_t>(first + r)], sequence);
            first += rows;
            run(rows, first == count ? 1 : 0);
        }
        return logits(0);
    }

    /// Continues the prompts, at most as many as there are texts; gives what was added to each. each(text, token) is
    /// called as soon as a token is drawn. Text i draws its token at position p by random{seed, i}.uniform(p), whatever
    /// the others do. Errors: those of `append` and `sample`.
    template <class Each>
    std::vector<std::vector<std::int32_t>> generate(std::span<const std::vector<std::int32_t>> prompts,
                                                    const generation_options& options, Each&& each) {
        check(options.how);
        const auto count = static_cast<index>(prompts.size());
        if (count > shape_.sequences) fail("generate: found ", count, " prompts, expected at most ", shape_.sequences);
        std::vector<std::vector<std::int32_t>> added(prompts.size());
        std::vector<index> growing;
        const auto draw = [&](index text, std::span<const A> from) {  // whether the text goes on
            auto& to = added[static_cast<std::size_t>(text)];
            if (options.most_tokens < 1 || length(text) >= shape_.capacity) return false;
            to.push_back(sample(from, options.how, static_cast<std::uint64_t>(text),
                                static_cast<std::uint64_t>(length(text)), candidates_));
            each(text, to.back());
            return static_cast<index>(to.size()) < options.most_tokens && length(text) + 1 < shape_.capacity &&
                   std::find(options.end_tokens.begin(), options.end_tokens.end(), to.back()) ==
                       options.end_tokens.end();
        };
        for (index text = 0; text < count; ++text) {
            clear(text);
            if (draw(text, append(prompts[static_cast<std::size_t>(text)], text))) growing.push_back(text);
        }
        while (!growing.empty()) {
            index rows = 0;
            for (const index text : growing) put(rows++, added[static_cast<std::size_t>(text)].back(), text);
            run(rows, rows);
            index row = 0;
            std::erase_if(growing, [&](index text) { return !draw(text, logits(row++)); });
        }
        return added;
    }
    std::vector<std::vector<std::int32_t>> generate(std::span<const std::vector<std::int32_t>> prompts,
                                                    const generation_options& options) {
        return generate(prompts, options, [](index, std::int32_t) {});
    }
    /// The same for one prompt.
    std::vector<std::int32_t> generate(const std::vector<std::int32_t>& prompt, const generation_options& options) {
        return std::move(generate(std::span{&prompt, 1}, options)[0]);
    }

  private:
    static constexpr models::decoder_shape shape_of(index sequences, index length, index workers) {
        return {.sequences = sequences,
                .capacity = length,
                .rows = std::max(sequences, std::min(piece, length)),
                .workers = workers};
    }
    static constexpr index bytes_of(const transformer& model, const models::decoder_shape& shape) {
        arena counted;
        counted.template take<candidate>(model.of.vocab_size);
        models::decoder<transformer>{model}.carve(counted, shape, nullptr);
        return counted.peak();
    }
    static index checked_bytes(const transformer& model, const models::decoder_shape& shape) {
        if (shape.sequences < 1 || shape.capacity < 1 || shape.capacity > model.of.max_position_embeddings)
            fail("generate: found ", shape.sequences, " texts of at most ", shape.capacity,
                 " tokens, expected at least 1 text of 1 to ", model.of.max_position_embeddings,
                 " (max_position_embeddings)");
        return bytes_of(model, shape);
    }
    [[nodiscard]] std::span<const A> logits(index row) const {
        return {memory_.logits.row(row), static_cast<std::size_t>(memory_.logits.width)};
    }
    /// Makes row r of the next run a token at the end of a text.
    void put(index r, std::int32_t token, index sequence) {
        memory_.ids[r] = token;
        memory_.sequences[r] = static_cast<std::int32_t>(sequence);
        memory_.positions[r] = static_cast<std::int32_t>(lengths_[static_cast<std::size_t>(sequence)]++);
    }
    void run(index rows, index wanted) {
        if (rows != rows_) {
            arena all{block_.data(), block_.size()};
            all.rewind(memory_.steps_at);
            decoder_.carve_step(all, rows, memory_);
            rows_ = rows;
        }
        auto& weights = engine_.memory();
        decoder_.forward(queue_,
                         {.batch = {.shape = {rows, 1},
                                    .positions = memory_.positions,
                                    .cosines = weights.cosines,
                                    .sines = weights.sines},
                          .sequences = memory_.sequences,
                          .capacity = shape_.capacity},
                         weights.weight_views, weights.buffers, memory_, wanted);
    }

    Engine& engine_;
    models::decoder_shape shape_;
    models::decoder<transformer> decoder_;
    host::memory block_;
    host::queue queue_;
    typename models::decoder<transformer>::memory memory_;
    std::span<candidate> candidates_;
    index rows_ = 0;
    std::vector<index> lengths_;
};

}  // namespace fathom::train
