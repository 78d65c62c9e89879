// Runs one step of a small DeepSeek-V3 in two layouts, or in one beside stored tensors, and says where they part.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fathom/comm/threads/run.hpp>
#include <fathom/core/random_stream.hpp>
#include <fathom/models/families.hpp>
#include <fathom/train/first_difference.hpp>
#include <fathom/train/record_step.hpp>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr const char* help =
    R"(compare_layouts A B [--bound X] [--write FILE]

Runs one step of a small DeepSeek-V3 in double, forward and backward, in layout A and in B with the same weights and the
same batch, and prints the first tensor that differs: layer, forward or backward, ranks and size. Ends with 1 if one
does, with 2 on an error. Ranks are threads.

A, B: dp=N, tp=N, pp=N, cp=N, ep=N, etp=N, zero=0..3, schedule=NAME with commas between them, or `one` for one rank:
  dp=2,tp=2,pp=2,schedule=zb_h1,zero=1
One of the two may be a safetensors file that holds any of the tensors by name: layers.N.attention and layers.N.output
(the residual stream inside and after block N), layers.N.experts (those chosen, ascending, in a floating-point format),
embedded, normed, mtp.N.normed, loss, cross_entropy, a gradient by its parameter's name, a weight by that after
"weights."; of runs of this model on this batch.

  --bound X       most that may lie between two: max|a - b| / max|b| of a tensor (1e-10)
  --write FILE    write all tensors of A as such a file
)";

using namespace fathom;
using family = models::latent_family;
using engine = train::engine<decltype(family::transformer<double, true>(models::model_config{}))>;

constexpr integer sequences = 16, length = 16;

models::model_config small_v3() {
    models::model_config c;
    c.type = models::family::deepseek_v3;
    c.vocab_size = 64, c.hidden_size = 32, c.num_hidden_layers = 6, c.first_k_dense_replace = 1;
    c.num_attention_heads = 8, c.q_lora_rank = 12, c.kv_lora_rank = 8;
    c.qk_nope_head_dim = 6, c.qk_rope_head_dim = 4, c.v_head_dim = 5;
    c.intermediate_size = 32, c.moe_intermediate_size = 8;
    c.n_routed_experts = 8, c.num_experts_per_tok = 3, c.n_shared_experts = 1;
    c.routed_scaling_factor = 2.5, c.norm_topk_prob = true;
    c.num_nextn_predict_layers = 1, c.max_position_embeddings = 32, c.initializer_range = 0.1;
    return c;
}
/// Embedding, six blocks, the head and a module of multi-token prediction over stages; the last one has the last two.
template <integer Count> layer_range spread(integer stage) {
    const integer base = 7 / Count, more = 7 % Count, first = stage * base + (stage < more ? stage : more);
    return {first, base + (stage < more ? 1 : 0) + (stage == Count - 1 ? 2 : 0)};
}
constexpr models::layers_of_stage stages[] = {&spread<1>, &spread<2>, &spread<3>, &spread<4>,
                                              &spread<5>, &spread<6>, &spread<7>};

template <class Schedule> schedule::built build(int ranks, int micro_batches) {
    return schedule::built::of<Schedule>(ranks, micro_batches);
}
struct known_schedule {
    std::string_view name;
    schedule::built (*build)(int, int);
    integer chunks;  // stages of a rank
};
constexpr known_schedule schedules[] = {{"one_f_one_b", &build<schedule::one_f_one_b>, 1},
                                        {"gpipe", &build<schedule::gpipe>, 1},
                                        {"interleaved_one_f_one_b<2>", &build<schedule::interleaved_one_f_one_b<2>>, 2},
                                        {"zb_h1", &build<schedule::zb_h1>, 1},
                                        {"zb_v", &build<schedule::zb_v>, 2},
                                        {"dual_pipe", &build<schedule::dual_pipe>, 1},
                                        {"dual_pipe_v", &build<schedule::dual_pipe_v>, 2}};

void require(bool holds, std::string_view text, const char* expected) {
    if (!holds) fail("compare_layouts: ", text, ": expected ", expected);
}

train::layout_facts layout_of(std::string_view text) {
    train::layout_facts layout;
    degrees& d = layout.mesh;
    const known_schedule* chosen = schedules;
    for (std::string_view rest = text == "one" ? "" : text; !rest.empty();) {
        const std::string_view word = rest.substr(0, rest.find(','));
        rest.remove_prefix(word.size() == rest.size() ? rest.size() : word.size() + 1);
        const std::size_t sign = word.find('=');
        const std::string_view name = word.substr(0, sign), value = sign == word.npos ? "" : word.substr(sign + 1);
        if (name == "schedule") {
            chosen = nullptr;
            std::string names;
            for (const known_schedule& s : schedules) {
                if (s.name == value) chosen = &s;
                names += text_of(names.empty() ? "" : ", ", s.name);
            }
            if (chosen == nullptr) fail("compare_layouts: found schedule \"", value, "\", expected one of ", names);
            continue;
        }
        const std::pair<std::string_view, integer*> numbers[] = {{"dp", &d.dp},         {"tp", &d.tp}, {"pp", &d.pp},
                                                                 {"cp", &d.cp},         {"ep", &d.ep}, {"etp", &d.etp},
                                                                 {"zero", &layout.zero}};
        bool read = false;
        for (const auto& [known, to] : numbers) {
            if (name != known) continue;
            const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), *to);
            read = problem == std::errc{} && end == value.data() + value.size() && *to >= (known == "zero" ? 0 : 1);
        }
        if (!read)
            fail("compare_layouts: found \"", word, "\", expected a file, one, or words such as dp=2; see --help");
    }
    const models::model_config c = small_v3();
    require(layout.zero <= 3, text, "zero=0 to zero=3");
    require(d.ranks() <= 64, text, "at most 64 ranks");
    require(sequences % d.dp == 0, text, "a dp that divides the 16 sequences");
    require(c.num_attention_heads % d.tp == 0, text, "a tp that divides the 8 heads");
    require(length % (2 * d.cp) == 0, text, "a cp of which twice divides the 16 tokens of a sequence");
    require(c.n_routed_experts % d.ep == 0, text, "an ep that divides the 8 experts");
    require(c.moe_intermediate_size % d.etp == 0, text, "an etp that divides the 8 columns of an expert");
    require(d.stage_ranks() % (d.ep * d.etp) == 0, text, "an ep x etp that divides dp x tp x cp");
    const integer count = d.pp * chosen->chunks;
    require(count <= static_cast<integer>(std::size(stages)), text, "at most 7 stages");
    layout.schedule = chosen->build;
    layout.layers = stages[count - 1];
    layout.micro_batches = sequences / d.dp;
    (void)layout.schedule(static_cast<int>(d.pp), static_cast<int>(layout.micro_batches));  // refuses what does not fit
    return layout;
}

/// Ids, targets and two documents a sequence, drawn by a fixed seed.
struct drawn_batch {
    std::vector<std::int32_t> tokens, targets, starts;

    explicit drawn_batch(integer vocabulary) {
        const random_stream drawn{1, 7};
        for (integer i = 0; i < sequences * length; ++i) {
            const auto id = [&](integer n) {
                return static_cast<std::int32_t>(drawn.uniform(static_cast<std::uint64_t>(n)) *
                                                 static_cast<double>(vocabulary));
            };
            const integer document = 5 + i / length % 3;
            tokens.push_back(id(2 * i));
            targets.push_back(id(2 * i + 1));
            starts.push_back(static_cast<std::int32_t>(i % length < document ? 0 : document));
        }
    }
};

void record(const train::layout_facts& layout, train::recorded_step& to) {
    const models::model_config config = small_v3();
    const auto model = family::transformer<double, true>(config);
    const drawn_batch batch{config.vocab_size};
    comm::threads::run(layout.mesh.ranks(), [&](auto& ranks) {
        engine mine{model, {.batch = {1, length}, .workers = 1}, 0, optim::adamw_facts{}, comm::link{ranks}, layout};
        mine.initialise(1);
        train::record_step(
            mine, {sequences, length, batch.tokens.data(), batch.targets.data(), nullptr, batch.starts.data()}, {}, to);
    });
}

int compare(const std::string& a, const std::string& b, double bound, const std::string& file) {
    const bool stored_a = a.ends_with(".safetensors"), stored_b = b.ends_with(".safetensors");
    if (stored_a && stored_b) fail("compare_layouts: found two files, expected a layout on one side");
    if (stored_a && !file.empty()) fail("compare_layouts: found --write with a file as A, expected a layout to write");
    const train::layout_facts layout_a = stored_a ? train::layout_facts{} : layout_of(a);
    const train::layout_facts layout_b = stored_b ? train::layout_facts{} : layout_of(b);
    train::recorded_step first, second;
    if (!stored_a) record(layout_a, first);
    if (!file.empty()) first.write(file);
    if (!stored_b) record(layout_b, second);
    if (stored_a) first.read(a, second);
    if (stored_b) second.read(b, first);
    if (const auto found = train::first_difference(first, second, bound)) {
        std::printf("%s\n", train::describe(*found).c_str());
        return 1;
    }
    std::printf("all %zu tensors agree to %g\n", std::min(first.tensors().size(), second.tensors().size()), bound);
    return 0;
}

}  // namespace

int main(int argc, char** argv) try {
    std::vector<std::string> sides;
    std::string file;
    double bound = 1e-10;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--help" || word == "-h") return std::fputs(help, stdout) < 0;
        if (word == "--write" && i + 1 < argc) {
            file = argv[++i];
        } else if (word == "--bound" && i + 1 < argc) {
            const std::string_view text = argv[++i];
            const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), bound);
            if (problem != std::errc{} || end != text.data() + text.size() || !(bound >= 0))
                fail("compare_layouts: found --bound ", text, ", expected a number of at least 0");
        } else if (!word.starts_with("-") && sides.size() < 2) {
            sides.emplace_back(word);
        } else {
            fail("compare_layouts: found the argument ", word, "; see --help");
        }
    }
    if (sides.size() != 2) fail("compare_layouts: found ", sides.size(), " layouts, expected A and B; see --help");
    return compare(sides[0], sides[1], bound, file);
} catch (const std::exception& wrong) {
    std::fprintf(stderr, "%s\n", wrong.what());
    return 2;
}
