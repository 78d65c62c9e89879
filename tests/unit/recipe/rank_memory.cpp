// The memory that a plan counts is the memory that a rank carves: every piece inside its item, none over another.
#include <doctest/doctest.h>

#include <algorithm>
#include <fathom/device/host/memory.hpp>
#include <fathom/recipe/plan.hpp>
#include <string>
#include <vector>

namespace fathom::test {

namespace {

constexpr models::model_config config{.vocab_size = 32,
                                      .hidden_size = 16,
                                      .num_hidden_layers = 3,
                                      .first_k_dense_replace = 1,
                                      .num_attention_heads = 2,
                                      .q_lora_rank = 12,
                                      .kv_lora_rank = 8,
                                      .qk_nope_head_dim = 6,
                                      .qk_rope_head_dim = 4,
                                      .v_head_dim = 5,
                                      .intermediate_size = 20,
                                      .moe_intermediate_size = 6,
                                      .n_routed_experts = 8,
                                      .num_experts_per_tok = 3,
                                      .n_shared_experts = 1,
                                      .num_nextn_predict_layers = 2,
                                      .max_position_embeddings = 64};

/// Pieces of memory by the item that they should lie in.
struct piece {
    std::string item;
    integer offset, bytes;
};

void check_memory(const nn::recomputation& again) {
    const auto model = models::latent_family::transformer<bf16>(config, again);
    using transformer = std::remove_const_t<decltype(model)>;
    const planning::rank_shape shape{.batch = {3, 16}, .workers = 2};
    const planning::plan plan = planning::lower(model, shape);
    const host::memory block{plan.bytes};
    arena memory{block.data(), plan.bytes};
    planning::rank_memory<transformer> held;
    planning::carve(model, memory, shape, &held);
    CHECK(memory.peak() == plan.bytes);

    std::vector<piece> pieces;
    const auto add = [&](const std::string& item, const auto* data, integer count) {
        const auto offset = reinterpret_cast<const std::byte*>(data) - block.data();
        pieces.push_back({item, offset, count * static_cast<integer>(sizeof(*data))});
    };
    const auto add_matrix = [&](const std::string& item, const auto& m) {
        if (m.size() > 0) add(item, m.data, m.size());
    };
    const auto add_parameters = [&]<class E>(const std::string& item, typename transformer::template parameters<E>& p) {
        model.template each_parameter<E>(&p, [&](auto& view, const nn::storage&, auto...) { add_matrix(item, view); });
    };
    add_parameters.operator()<bf16>("weights", held.weight_views);
    const auto add_flat = [&](const std::string& item, float* numbers) {
        transformer::parameters<float> views;
        planning::bind_views(model, held.layout, views, numbers, &planning::placed_storage::at);
        add_parameters.operator()<float>(item, views);
    };
    add_flat("master weights", held.master.data);
    add_parameters.operator()<float>("gradients", held.gradient_views);
    add_flat("first moments", held.first_moments.data);
    add_flat("second moments", held.second_moments.data);
    model.each_buffer(&held.buffers,
                      [&](auto& view, const nn::storage&, auto...) { add_matrix("router biases and loads", view); });
    add("step state and rotary tables", held.state, 1);
    add_matrix("step state and rotary tables", held.cosines);
    add_matrix("step state and rotary tables", held.sines);
    for (integer k = 0; k <= config.num_nextn_predict_layers; ++k) {
        const auto& in = held.inputs[static_cast<std::size_t>(k)];
        const integer tokens = 3 * (16 - k);
        for (const auto* numbers : {in.ids, in.targets, in.positions, in.starts}) add("inputs", numbers, tokens);
    }
    add_matrix("embedding", held.saved.embedded);
    const auto add_block = [&](const std::string& item, const auto& kept) {
        add_matrix(item, kept.y);
        add_matrix(item, kept.in.mid);
        add_matrix(item, kept.in.attention_in);
        add_matrix(item, kept.in.mlp_in);
        add_matrix(item, kept.in.self_attn.a);
        add_matrix(item, kept.in.self_attn.kv);
        add_matrix(item, kept.in.self_attn.out);
        add_matrix(item, kept.in.self_attn.logsumexp);
        add_matrix(item, kept.in.mlp.gate_up);
        add_matrix(item, kept.in.mlp.act);
    };
    std::apply(
        [&](const auto&... kind) {
            (std::for_each(kind.begin(), kind.end(), [&](const auto& kept) { add_block("blocks", kept); }), ...);
        },
        held.saved.blocks);
    add_matrix("final norm", held.saved.normed);
    for (const auto& module : held.saved.mtp) {
        add_matrix("multi-token prediction", module.joined);
        add_matrix("multi-token prediction", module.normed);
        add_block("multi-token prediction", module.layer);
    }
    std::apply(
        [&](const auto&... kind) { (add_matrix("between input and weight gradients", kind[0].self_attn.da), ...); },
        held.deferred.blocks);
    add("scratch of workers", held.scratch, 2 * held.scratch_bytes);

    for (const piece& p : pieces) {
        INFO(p.item, " at ", p.offset);
        const auto inside = [&](const arena_item& item) {
            return item.name == p.item && p.offset >= item.offset && p.offset + p.bytes <= item.offset + item.bytes;
        };
        CHECK(std::any_of(plan.memory.items.begin(), plan.memory.items.begin() + plan.memory.count,
                          [&](const auto& item) { return item.name != nullptr && inside(item); }));
        CHECK(p.offset % arena::alignment == 0);
    }
    std::erase_if(pieces, [](const piece& p) { return p.item.starts_with("between"); });  // these share their memory
    std::sort(pieces.begin(), pieces.end(), [](const piece& a, const piece& b) { return a.offset < b.offset; });
    for (std::size_t i = 1; i < pieces.size(); ++i) {
        INFO(pieces[i - 1].item, " and ", pieces[i].item);
        CHECK(pieces[i - 1].offset + pieces[i - 1].bytes <= pieces[i].offset);
    }
}

}  // namespace

TEST_CASE("rank memory: pieces lie inside the plan's items and not over each other") { check_memory({}); }
TEST_CASE("rank memory: the same with everything recomputed") {
    check_memory({.norms = true, .up_projections = true, .swiglu = true, .blocks = true});
}

}  // namespace fathom::test
