// One program for several numbers of ranks.
#include <fathom/train/any_of.hpp>

#include <doctest/doctest.h>

#include <fathom/models.hpp>
#include <fathom/train/launch.hpp>
#include <string>
#include <vector>

#include "../scratch_folder.hpp"

namespace fathom {
namespace {

struct tiny : deepseek_llm<vocab_size<32>, hidden_size<16>, num_hidden_layers<2>, num_attention_heads<2>,
                           num_key_value_heads<2>, intermediate_size<32>, max_position_embeddings<16>> {};
template <class Mesh> struct on : training<tiny, Mesh, precision<weights<fp64>>, sequence_length<8>, micro_batch<2>> {};
using alone = on<mesh<>>;
using split = on<mesh<dp<1>, tp<2>>>;
using wide = on<mesh<dp<any>, pp<2>, tp<2>>>;
using picked = any_of<alone, split, wide>;

/// The exit status of a program on so many threads whose run takes one step; `degrees` gets the mesh of each.
int launched(integer threads, std::vector<degrees>& seen) {
    std::string words[] = {"program", "--threads", text_of(threads)};
    char* pointers[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    int count = 3;
    seen.resize(static_cast<std::size_t>(threads));
    return launch<picked>(count, pointers, [&](world& all) {
        return start<picked>(all, {.warmup_steps = 0, .micro_batches = 2, .workers = 1}, [&](auto& run) {
            const std::vector<std::int32_t> tokens(32, 3);
            seen[static_cast<std::size_t>(all.rank())] = run.engine().links().of;
            return run.step({4, 8, tokens.data(), tokens.data()}).tokens == 32 * run.replicas().size() ? 0 : 2;
        });
    });
}

}  // namespace

TEST_CASE("any_of: the first recipe that fits the world is run") {
    std::vector<degrees> seen;
    CHECK(launched(1, seen) == 0);
    CHECK(!seen[0].split());
    CHECK(launched(2, seen) == 0);
    CHECK(seen[1] == degrees{.tp = 2});
    CHECK(launched(8, seen) == 0);
    for (const degrees& each : seen) CHECK(each == degrees{.dp = 2, .pp = 2, .tp = 2});
}

TEST_CASE("any_of: a world that fits none is refused before its body, with what would fit") {
    std::vector<degrees> seen;
    CHECK(launched(3, seen) == 1);
    CHECK(seen[0] == degrees{});
    CHECK(picked::place_for(6) == 3);
    comm::threads::run(6, [](auto& ranks) {
        CHECK(test::message_of([&] {
                  picked::require_ranks(world{nullptr, comm::link{ranks}});
              }) ==
              "found 6 ranks, which no recipe is for; expected the 1 of a mesh with dp 1 x pp 1 x tp 1 x cp 1, or the "
              "2 of a mesh with dp 1 x pp 1 x tp 2 x cp 1, or a multiple of the 4 of a mesh with dp any x pp 2 x tp 2 "
              "x cp 1; would fit: 1, 2, 4, 8 (--threads N or mpirun -n N)");
    });
}

}  // namespace fathom
