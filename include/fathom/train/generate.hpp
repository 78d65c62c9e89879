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
    integer most_tokens = 256;  // new ones of a text; it also ends where the generator's length ends
    sampling how{};
    integer vocab_size = 0;                  // ids that are drawn lie below it, as a tokenizer's do; 0: the model's
    std::vector<std::int32_t> end_tokens{};  // the first that is drawn ends the text and is its last token
};

/// Generates with the weights of an engine (one that trains, or one of planning::rank_shape{.trains = false}), which
/// must outlive it; weights that move between two calls are seen by the next. Its memory is one arena of exactly
/// `generator::bytes`, from which all comes that grows with the model or the texts.
template <class Engine> class generator {
  public:
    using T = typename Engine::T;
    using A = typename Engine::A;
    using transformer = typename Engine::transformer;

    /// Tokens of a prompt that are read at once at most.
    static constexpr integer piece = 64;

    /// For `sequences` texts of at most `length` tokens, prompts included. Errors: no text, or a length that the model
    /// has no positions for, or weights of blocks that are sharded over ranks.
    generator(Engine& engine, integer sequences, integer length)
        : engine_(engine),
          shape_(shape_of(sequences, length, engine.queue().workers_count())),
          decoder_{engine.model()},
          block_(checked_bytes(engine, shape_)),
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
    static constexpr integer bytes(const transformer& model, integer sequences, integer length, integer workers) {
        return bytes_of(model, shape_of(sequences, length, workers));
    }
    [[nodiscard]] integer arena_bytes() const { return block_.size(); }
    /// Tokens that a text has.
    [[nodiscard]] integer length(integer sequence = 0) const { return lengths_[static_cast<std::size_t>(sequence)]; }
    /// Forgets a text.
    void clear(integer sequence = 0) { lengths_[static_cast<std::size_t>(sequence)] = 0; }

    /// Adds tokens to a text; the logits after the last of them, valid until the next call. Errors: no token, an id
    /// outside the vocabulary, more tokens than there is room for.
    std::span<const A> append(std::span<const std::int32_t> tokens, integer sequence = 0) {
        integer& used = lengths_[static_cast<std::size_t>(sequence)];
        const auto count = static_cast<integer>(tokens.size());
        if (count < 1 || used + count > shape_.capacity)
            fail("generate: found ", count, " tokens for a text of ", used, ", expected 1 to ", shape_.capacity - used,
                 " (of ", shape_.capacity, " in all)");
        for (integer i = 0; i < count; ++i)
            if (tokens[static_cast<std::size_t>(i)] < 0 ||
                tokens[static_cast<std::size_t>(i)] >= decoder_.of.of.vocab_size)
                fail("generate: token ", i, " of the prompt is ", tokens[static_cast<std::size_t>(i)],
                     ", expected an id in [0, ", decoder_.of.of.vocab_size, ")");
        for (integer first = 0; first < count;) {
            const integer rows = std::min(piece, count - first);
            for (integer r = 0; r < rows; ++r) put(r, tokens[static_cast<std::size_t>(first + r)], sequence);
            first += rows;
            run(rows, first == count ? 1 : 0);
        }
        return logits(0);
    }

    /// Continues the prompts, at most as many as there are texts; gives what was added to each. each(text, token) is
    /// called as soon as a token is drawn. Text i draws its token at position p by random_stream{seed, i}.uniform(p),
    /// whatever the others do. Errors: those of `append` and `sample`.
    template <class Each>
    std::vector<std::vector<std::int32_t>> generate(std::span<const std::vector<std::int32_t>> prompts,
                                                    const generation_options& options, Each&& each) {
        check(options.how);
        if (options.vocab_size < 0)
            fail("generate: found a vocabulary of ", options.vocab_size, ", expected 0 (the model's) or more");
        const auto count = static_cast<integer>(prompts.size());
        if (count > shape_.sequences) fail("generate: found ", count, " prompts, expected at most ", shape_.sequences);
        std::vector<std::vector<std::int32_t>> added(prompts.size());
        std::vector<integer> growing;
        const auto draw = [&](integer text, std::span<const A> from) {  // whether the text goes on
            auto& to = added[static_cast<std::size_t>(text)];
            if (options.most_tokens < 1 || length(text) >= shape_.capacity) return false;
            const auto ids = static_cast<std::size_t>(options.vocab_size);
            to.push_back(sample(ids > 0 && ids < from.size() ? from.first(ids) : from, options.how,
                                static_cast<std::uint64_t>(text), static_cast<std::uint64_t>(length(text)),
                                candidates_));
            each(text, to.back());
            return static_cast<integer>(to.size()) < options.most_tokens && length(text) + 1 < shape_.capacity &&
                   std::find(options.end_tokens.begin(), options.end_tokens.end(), to.back()) ==
                       options.end_tokens.end();
        };
        for (integer text = 0; text < count; ++text) {
            clear(text);
            if (draw(text, append(prompts[static_cast<std::size_t>(text)], text))) growing.push_back(text);
        }
        while (!growing.empty()) {
            integer rows = 0;
            for (const integer text : growing) put(rows++, added[static_cast<std::size_t>(text)].back(), text);
            run(rows, rows);
            integer row = 0;
            std::erase_if(growing, [&](integer text) { return !draw(text, logits(row++)); });
        }
        return added;
    }
    std::vector<std::vector<std::int32_t>> generate(std::span<const std::vector<std::int32_t>> prompts,
                                                    const generation_options& options) {
        return generate(prompts, options, [](integer, std::int32_t) {});
    }
    /// The same for one prompt.
    std::vector<std::int32_t> generate(const std::vector<std::int32_t>& prompt, const generation_options& options) {
        return std::move(generate(std::span{&prompt, 1}, options)[0]);
    }

  private:
    static constexpr models::decoder_shape shape_of(integer sequences, integer length, integer workers) {
        return {.sequences = sequences,
                .capacity = length,
                .rows = std::max(sequences, std::min(piece, length)),
                .workers = workers};
    }
    static constexpr integer bytes_of(const transformer& model, const models::decoder_shape& shape) {
        arena counted;
        counted.template take<candidate>(model.of.vocab_size);
        models::decoder<transformer>{model}.carve(counted, shape, nullptr);
        return counted.peak();
    }
    static integer checked_bytes(const Engine& engine, const models::decoder_shape& shape) {
        const transformer& model = engine.model();
        if (engine.shape().shards.zero > 2)
            fail(
                "generate: found blocks whose weights are sharded over ranks (zero<3>), expected all of them on every ",
                "rank: save_pretrained, and generate from what it writes");
        if (shape.sequences < 1 || shape.capacity < 1 || shape.capacity > model.of.max_position_embeddings)
            fail("generate: found ", shape.sequences, " texts of at most ", shape.capacity,
                 " tokens, expected at least 1 text of 1 to ", model.of.max_position_embeddings,
                 " (max_position_embeddings)");
        return bytes_of(model, shape);
    }
    [[nodiscard]] std::span<const A> logits(integer row) const {
        return {memory_.logits.row(row), static_cast<std::size_t>(memory_.logits.width)};
    }
    /// Makes row r of the next run a token at the end of a text.
    void put(integer r, std::int32_t token, integer sequence) {
        memory_.ids[r] = token;
        memory_.sequences[r] = static_cast<std::int32_t>(sequence);
        memory_.positions[r] = static_cast<std::int32_t>(lengths_[static_cast<std::size_t>(sequence)]++);
    }
    void run(integer rows, integer wanted) {
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
    integer rows_ = 0;
    std::vector<integer> lengths_;
};

}  // namespace fathom::train
