// Finds text, trains the tokenizer, writes the corpus; each is skipped when it is there and its inputs are the same.
#include "text.hpp"

#include <unistd.h>

#include <algorithm>
#include <fathom/checkpoint/checksum.hpp>
#include <fathom/core/json.hpp>
#include <fathom/data/bigram.hpp>
#include <fathom/data/corpus.hpp>
#include <fathom/data/loader.hpp>
#include <fathom/data/make_corpus.hpp>
#include <fathom/data/tokenizer.hpp>
#include <fathom/data/tokenizer_trainer.hpp>
#include <filesystem>
#include <optional>
#include <set>
#include <thread>

#include "stage.hpp"

namespace pretrain {

namespace {

namespace files = std::filesystem;
using fathom::fail, fathom::integer, fathom::mapped_file, fathom::text_of;

constexpr double held_out_share = 0.02;
constexpr double million = 1e6;

std::uint64_t checksum(std::string_view text) { return fathom::checksum(std::as_bytes(std::span{text})); }

struct text_file {
    std::string path;
    std::size_t bytes;
    std::uint64_t checksum;
};

/// Collects files, each once, and their sizes.
class text_search {
  public:
    text_search(double limit, const std::string& run)
        : left_(limit), run_(files::weakly_canonical(run).string() + '/') {}

    /// A file that was named: taken whole. Errors: it is missing, empty or no text.
    void file(const std::string& path) {
        const mapped_file contents{path};
        const std::string_view text = fathom::detail::checked_text(contents);
        if (seen_.insert(files::weakly_canonical(path).string()).second)
            found.push_back({path, text.size(), checksum(text)});
    }

    /// The text files below a directory, in the order of a number that their names give, while they fit into the limit:
    /// where there is too much, all parts of the directory have their share.
    void directory(const std::string& root) {
        struct candidate {
            std::uint64_t order;
            std::string path;
            std::size_t bytes;
        };
        std::vector<candidate> all;
        files::recursive_directory_iterator at{root, files::directory_options::skip_permission_denied};
        for (const auto end = files::end(at); at != end; ++at) {
            const std::string path = at->path().string();
            const bool hidden = at->path().filename().string().starts_with('.');
            std::error_code problem;
            if (at->is_directory(problem) && (hidden || (files::weakly_canonical(path).string() + '/') == run_))
                at.disable_recursion_pending();
            if (hidden || at->is_symlink(problem) || !at->is_regular_file(problem)) continue;
            const auto bytes = at->file_size(problem);
            if (!problem && bytes > 0)
                all.push_back({checksum(path.substr(root.size())), path, static_cast<std::size_t>(bytes)});
        }
        std::sort(all.begin(), all.end(), [](const candidate& a, const candidate& b) {
            return std::pair{a.order, a.path} < std::pair{b.order, b.path};
        });
        std::vector<text_file> taken;
        for (const candidate& c : all) {
            if (static_cast<double>(c.bytes) > left_ || !seen_.insert(files::weakly_canonical(c.path).string()).second)
                continue;
            try {
                const mapped_file contents{c.path};
                taken.push_back({c.path, c.bytes, checksum(fathom::detail::checked_text(contents))});
                left_ -= static_cast<double>(c.bytes);
            } catch (const fathom::error&) {  // unreadable or no text: nobody named it
            }
        }
        std::sort(taken.begin(), taken.end(), [](const text_file& a, const text_file& b) { return a.path < b.path; });
        found.insert(found.end(), taken.begin(), taken.end());
    }

    std::vector<text_file> found;

  private:
    double left_;
    std::string run_;
    std::set<std::string> seen_;
};

/// The C++ headers of the compiler that built this program, or whatever headers there are.
std::vector<std::string> usual_text() {
    for (const std::string& root : {text_of("/usr/include/c++/", __GNUC__), std::string{"/usr/include"}})
        if (files::is_directory(root)) return {root};
    return {};
}

std::vector<text_file> find_text(const options& chosen) {
    const std::vector<std::string> roots = chosen.data.empty() ? usual_text() : chosen.data;
    text_search search{chosen.data_limit * million, chosen.run};
    for (const std::string& root : roots) files::is_directory(root) ? search.directory(root) : search.file(root);
    std::string named;
    for (const std::string& root : roots) named += (named.empty() ? "" : ", ") + root;
    if (search.found.empty())
        fail(roots.empty()
                 ? "no headers below /usr/include"
                 : named + ": found no text file of at most " + text_of(chosen.data_limit) + " MB (--data-limit)",
             ", expected text to learn: --data FILE...");
    return search.found;
}

std::string trained_tokenizer(const std::vector<text_file>& text, integer vocabulary, double limit) {
    fathom::tokenizer_trainer trainer{{.vocab_size = static_cast<std::int32_t>(vocabulary)}};
    auto left = static_cast<std::size_t>(limit);
    for (const text_file& file : text) {
        const mapped_file contents{file.path};
        std::string_view part = contents.text();
        if (part.size() > left) part = part.substr(0, part.rfind('\n', left) + 1);  // none: nothing of it
        trainer.add(part);
        left -= part.size();
    }
    return trainer.tokenizer_json();
}

std::int32_t end_of_document(const fathom::tokenizer& words, const std::string& path) {
    constexpr const char* known[] = {"<｜end▁of▁sentence｜>", "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
    std::string names;
    for (const char* name : known) {
        if (const auto id = words.find(name)) return *id;
        names += text_of(names.empty() ? "" : ", ", name);
    }
    fail(path, ": found no token that ends a document, expected one of ", names);
}

void make_text(const run_text& to, const options& chosen, const std::vector<text_file>& text, integer most_vocabulary) {
    stage tokenizer_stage{"tokenizer"};
    const std::string tokenizer = chosen.tokenizer.empty()
                                      ? trained_tokenizer(text, most_vocabulary, chosen.data_limit * million)
                                      : std::string{mapped_file{chosen.tokenizer}.text()};
    const std::string& from = chosen.tokenizer.empty() ? to.tokenizer : chosen.tokenizer;
    const fathom::tokenizer words = fathom::tokenizer::parse(tokenizer, from);
    if (words.vocab_size() > most_vocabulary)
        fail(from, ": found ", words.vocab_size(), " tokens, expected at most ", most_vocabulary,
             ", the model's vocab_size in examples/pretrain.cpp");
    fathom::write_atomically(to.tokenizer, tokenizer);
    tokenizer_stage.done(text_of(words.vocab_size(), " tokens, ", chosen.tokenizer.empty() ? "trained" : "taken from ",
                                 chosen.tokenizer));

    stage corpus_stage{"corpus"};
    std::vector<std::string> paths;
    for (const text_file& file : text) paths.push_back(file.path);
    const auto facts = fathom::make_corpus(paths, words, to.corpus,
                                           {.held_out = held_out_share,
                                            .workers = static_cast<int>(std::thread::hardware_concurrency()),
                                            .end_of_document = end_of_document(words, from)});
    corpus_stage.done(text_of(facts.tokens, " tokens, of which ", facts.held_out_tokens, " in ",
                              facts.held_out_documents, " of ", facts.documents, " files are held out"));
}

}  // namespace

run_text text_of_run(const std::string& run) { return {run + "/corpus.bin", run + "/tokenizer.json"}; }

void prepare_text(const options& chosen, bool goes_on, integer most_vocabulary) {
    const run_text text = text_of_run(chosen.run);
    const std::string record = chosen.run + "/inputs.json";
    const bool made = files::exists(text.corpus) && files::exists(text.tokenizer) && files::exists(record);
    if (goes_on && made && chosen.data.empty() && chosen.tokenizer.empty()) return;

    stage text_stage{"text"};
    const std::vector<text_file> found = find_text(chosen);
    std::size_t bytes = 0;
    std::string inputs = text_of("1 ", most_vocabulary, ' ', chosen.data_limit, ' ', held_out_share, ' ',
                                 chosen.tokenizer.empty() ? 0 : checksum(mapped_file{chosen.tokenizer}.text()), '\n');
    for (const text_file& file : found) {
        bytes += file.bytes;
        inputs += text_of(file.path, ' ', file.bytes, ' ', file.checksum, '\n');
    }
    const std::string mark = text_of(checksum(inputs));
    const bool same = made && fathom::json::parse_file(record).at("inputs").as_string() == mark;
    text_stage.done(
        text_of(found.size(), " files of ", static_cast<double>(bytes) / million, " MB", same ? ", as before" : ""));
    if (same) return;
    if (goes_on)
        fail(chosen.run,
             ": found a run that was trained on other text or with another tokenizer, expected the same to "
             "go on; --fresh starts anew, --run DIR starts another run");

    files::create_directories(chosen.run);
    files::remove(record);  // what it stands for is about to change
    make_text(text, chosen, found, most_vocabulary);
    fathom::json::value facts;
    facts.set("inputs", mark);
    facts.set("files", found.size());
    facts.set("bytes", bytes);
    facts.set("tokenizer", chosen.tokenizer.empty() ? "trained" : chosen.tokenizer);
    fathom::write_atomically(record, fathom::json::write(facts, 2) + '\n');
}

yardstick measure_held_out(const run_text& text, integer length, bool across_documents) {
    const fathom::corpus corpus = fathom::corpus::open(text.corpus);
    const fathom::loader order{corpus, {.length = length, .across_documents = across_documents}};
    const fathom::tokenizer words = fathom::tokenizer::open(text.tokenizer);
    if (order.held_out_sequences() == 0)
        fail(text.corpus, ": found no text to hold out, expected at least two files, or one of several lines");
    stage bigram_stage{"bigram"};
    const fathom::bigram bigram{corpus};
    yardstick made;
    integer targets = 0;
    for (integer i = 0; i < order.held_out_sequences(); ++i) {
        const fathom::batch sequence = order.held_out(i, 1);
        made.bigram_loss += bigram.loss(sequence);
        targets += sequence.targets;
    }
    made.bigram_loss /= static_cast<double>(std::max(targets, integer{1}));
    made.bytes = static_cast<double>(order.held_out_bytes());
    for (integer i = 0; i < corpus.documents(); ++i) {
        if (!corpus[i].held_out) continue;
        std::int32_t first = 0;
        corpus.read(corpus[i].first, {&first, 1});
        made.bytes -= static_cast<double>(words.bytes(first).size());
    }
    char loss[32];
    std::snprintf(loss, sizeof loss, "%.3f", made.bigram_loss);
    bigram_stage.done(text_of("validation loss of bigrams mixed with unigrams: ", loss));
    return made;
}

std::vector<std::vector<std::int32_t>> prompts(const run_text& text, const options& chosen) {
    const fathom::tokenizer words = fathom::tokenizer::open(text.tokenizer);
    std::vector<std::vector<std::int32_t>> made;
    for (const std::string& prompt : chosen.prompts) made.push_back(words.encode(prompt));
    if (!made.empty()) return made;
    const fathom::corpus corpus = fathom::corpus::open(text.corpus);
    std::vector<integer> documents;
    constexpr integer tokens = 48, samples = 3;
    for (integer i = 0; i < corpus.documents(); ++i)
        if (corpus[i].held_out && corpus[i].tokens > 2 * tokens) documents.push_back(i);
    const integer count = std::min(samples, static_cast<integer>(documents.size()));
    for (integer s = 0; s < count; ++s) {
        const auto document = corpus[documents[static_cast<std::size_t>(
            (2 * s + 1) * static_cast<integer>(documents.size()) / (2 * count))]];
        integer at = document.tokens / 2;
        std::int32_t before = 0;
        for (const integer half = at; at < half + tokens / 2; ++at) {  // to the start of a line, where one is near
            corpus.read(document.first + at - 1, {&before, 1});
            if (words.bytes(before).ends_with('\n')) break;
        }
        made.emplace_back(static_cast<std::size_t>(std::min(tokens, document.tokens - 1 - at)));
        corpus.read(document.first + at, made.back());
    }
    return made;
}

std::string decode(const run_text& text, const std::vector<std::int32_t>& ids) {
    return fathom::tokenizer::open(text.tokenizer).decode(ids, true);
}

integer vocabulary_of(const run_text& text) { return fathom::tokenizer::open(text.tokenizer).vocab_size(); }

std::int32_t end_of_document(const run_text& text) { return fathom::corpus::open(text.corpus).end_of_document(); }

}  // namespace pretrain
