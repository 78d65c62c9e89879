// Text on this machine becomes what a run reads: a tokenizer and a corpus in its folder, and what is to be beaten.
#pragma once

#include <cstdint>
#include <fathom/core/bytes.hpp>
#include <string>
#include <vector>

#include "options.hpp"

namespace pretrain {

/// The text of a run, in the run's folder.
struct run_text {
    std::string corpus, tokenizer;  // paths
};

/// Where a run has its text.
[[nodiscard]] run_text text_of_run(const std::string& run);

/// Makes them, or finds that they are there and that what they were made from has not changed. Where the run has saves
/// (`goes_on`), other text is an error; no text named on the command line then means the text it has. Errors: text that
/// is missing, empty or binary; a tokenizer of more than `most_vocabulary` tokens.
void prepare_text(const options& chosen, bool goes_on, fathom::integer most_vocabulary);

/// The held-out text, in sequences of `length` tokens, as the simplest model sees it.
struct yardstick {
    double bigram_loss = 0;  // nats a token
    double bytes = 0;        // of text that is predicted: all but each document's first token
};
[[nodiscard]] yardstick measure_held_out(const run_text& text, fathom::integer length, bool across_documents);

/// Texts to go on with: those asked for, or stretches of held-out documents.
[[nodiscard]] std::vector<std::vector<std::int32_t>> prompts(const run_text& text, const options& chosen);

/// The text of tokens.
[[nodiscard]] std::string decode(const run_text& text, const std::vector<std::int32_t>& ids);
/// How many tokens the tokenizer has: at most as many as the model.
[[nodiscard]] fathom::integer vocabulary_of(const run_text& text);
/// The token that ends a document.
[[nodiscard]] std::int32_t end_of_document(const run_text& text);

}  // namespace pretrain
