// What a whole process takes, seen from outside: the planned arena, the libraries, and nothing else that grows with the
// model.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fathom/recipe/plan.hpp>
#include <fathom/train/engine.hpp>
#include <vector>

namespace fathom::test {

struct medium : deepseek_v3<vocab_size<4'096>, hidden_size<256>, num_hidden_layers<6>, first_k_dense_replace<1>,
                            num_attention_heads<8>, q_lora_rank<96>, kv_lora_rank<64>, qk_nope_head_dim<32>,
                            qk_rope_head_dim<16>, v_head_dim<32>, intermediate_size<704>, moe_intermediate_size<128>,
                            n_routed_experts<16>, num_experts_per_tok<4>, n_shared_experts<1>, n_group<4>,
                            topk_group<2>, max_position_embeddings<1'024>> {};
struct medium_recipe : training<medium, mesh<>, precision<weights<fp32>>, sequence_length<256>, micro_batch<8>> {};

/// A figure of this process in bytes: "VmHWM" is the most that was resident.
integer process_figure(const char* name) {
    integer kibibytes = 0;
    char line[256];
    std::FILE* status = std::fopen("/proc/self/status", "r");
    while (status != nullptr && std::fgets(line, sizeof line, status) != nullptr)
        if (std::strncmp(line, name, std::strlen(name)) == 0)
            std::sscanf(line + std::strlen(name) + 1, "%td", &kibibytes);
    if (status != nullptr) std::fclose(status);
    return kibibytes * 1024;
}

/// The peak of a child process that does `work` and nothing else.
template <class Work> integer peak_of_child(Work&& work) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        work();
        const integer peak = process_figure("VmHWM");
        _exit(write(ends[1], &peak, sizeof peak) == static_cast<ssize_t>(sizeof peak) ? 0 : 1);
    }
    integer peak = 0;
    close(ends[1]);
    CHECK(read(ends[0], &peak, sizeof peak) == static_cast<ssize_t>(sizeof peak));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(status == 0);
    return peak;
}

TEST_CASE("a process holds the planned arena and what the libraries take") {
    constexpr int workers = 2;
    constexpr integer arena = planning::bytes_of<medium_recipe>(workers);
    const integer empty = peak_of_child([] {});
    // The libraries' own memory: oneDNN writes its code and packs operands, which it does for one product as for all.
    const integer libraries =
        peak_of_child([] {
            host::workers pool{workers};
            host::queue queue{pool, nullptr, 0};
            constexpr integer n = 512;
            std::vector<float> a(n * n), b(n * n), c(n * n);
            for (const auto left : {ops::side::plain, ops::side::transposed})
                for (const auto right : {ops::side::plain, ops::side::transposed})
                    queue.enqueue(workers, [&](integer, int) {
                        std::vector<float> own(n * n);
                        ops::gemm(left, right, n, n, n, 1.0f, a.data(), n, b.data(), n, 0.0f, own.data(), n);
                    });
        }) -
        empty;
    const integer training = peak_of_child([] {
        train::engine engine{
            planning::transformer_of<medium_recipe>(), {.batch = medium_recipe::batch, .workers = workers}, arena, {}};
        engine.initialise(1);
        std::vector<std::int32_t> ids(static_cast<std::size_t>(medium_recipe::batch.tokens()));
        for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 7919 % 4096);
        const train::batch_view batch{medium_recipe::batch.sequences, medium_recipe::batch.length, ids.data(),
                                      ids.data()};
        for (int step = 0; step < 2; ++step) engine.step(batch, {.learning_rate = 1e-3});
    });
    MESSAGE("arena ", arena >> 20, " MiB, libraries ", libraries >> 20, " MiB, process beyond an empty one ",
            (training - empty) >> 20, " MiB");
    CHECK(training - empty <= arena + arena / 20 + libraries);
    CHECK(training - empty >= arena / 2);  // it was really used
}

}  // namespace fathom::test
