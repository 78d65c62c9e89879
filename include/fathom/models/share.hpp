// A rank's share of a model: the stages that it holds, and of each the heads, columns, experts and places that are its.
#pragma once

#include <fathom/models/transformer.hpp>
#include <fathom/nn/context_exchange.hpp>
#include <fathom/parallel/degrees.hpp>
#include <fathom/parallel/schedule/shape.hpp>
#include <fathom/parallel/stages.hpp>

namespace fathom::models {

/// What a recipe chooses for ranks that split a model, beside the degrees.
struct share_choices {
    double expert_tokens = 2;    // rows reserved for experts, over those of an even load
    double capacity_factor = 0;  // 0: no token is dropped
    nn::context_exchange exchange = nn::context_exchange::all_gather;
};

/// The layers of pipeline stages, counted with the embedding first and the head after the last block, modules of
/// multi-token prediction behind it.
using layers_of_stage = layer_range (*)(integer stage);

/// The stage that holds those layers, of a model of so many blocks.
constexpr stage stage_of(const layer_range& layers, integer blocks) {
    const integer begin = std::max<integer>(layers.first, 1), end = std::min(layers.first + layers.count, blocks + 1);
    return {.first = begin - 1,
            .count = std::max<integer>(end - begin, 0),
            .embedding = layers.first == 0,
            .head = layers.first <= blocks + 1 && layers.first + layers.count > blocks + 1};
}

/// The stages of a rank under a schedule of that shape.
constexpr held_stages stages_of(const schedule::shape& shape, int rank, layers_of_stage layers, integer blocks) {
    held_stages held;
    held.count = shape.chunks;
    for (int c = 0; c < shape.chunks; ++c)
        held.each[static_cast<std::size_t>(c)] = stage_of(layers(shape.stage_of(rank, c)), blocks);
    held.falling = shape.way == schedule::route::two_way && shape.stage_of(rank, 0) > shape.stage_of(rank, 1);
    return held;
}

namespace detail {

/// Tells a layer's facts, and those inside, which ranks split them, and the most tokens that one of them has.
constexpr void split_facts(auto& facts, const degrees& d, const rank_place& at, integer tokens) {
    if constexpr (requires { facts.tensor; }) facts.tensor = {d.tp, at.tp};
    if constexpr (requires { facts.context; }) facts.context = {d.cp, at.cp};
    if constexpr (requires { facts.expert; }) facts.expert = {d.ep, at.ep};
    if constexpr (requires { facts.expert_tensor; }) facts.expert_tensor = {d.etp, at.etp};
    if constexpr (requires { facts.most_tokens; }) facts.most_tokens = tokens;
    if constexpr (requires { facts.self_attn; }) split_facts(facts.self_attn, d, at, tokens);
    if constexpr (requires { facts.mlp; }) split_facts(facts.mlp, d, at, tokens);
}

constexpr void choose(auto& facts, const share_choices& choices) {
    if constexpr (requires { facts.capacity_factor; })
        facts.expert_tokens = choices.expert_tokens, facts.capacity_factor = choices.capacity_factor;
    if constexpr (requires { facts.exchange; }) facts.exchange = choices.exchange;
    if constexpr (requires { facts.self_attn; }) choose(facts.self_attn, choices);
    if constexpr (requires { facts.mlp; }) choose(facts.mlp, choices);
}

}  // namespace detail

/// A model with what a recipe chooses for the ranks that split it.
template <class Transformer> constexpr Transformer chosen(Transformer model, const share_choices& choices) {
    std::apply([&](auto&... part) { (detail::choose(part.layer.of, choices), ...); }, model.segments);
    return model;
}

/// What a rank at that place holds of a whole model, for micro-batches of at most that shape.
template <class Transformer>
constexpr Transformer share_of_model(Transformer whole, const degrees& d, const rank_place& at, const held_stages& held,
                                     nn::extents batch) {
    const integer tokens = batch.tokens() / d.cp;
    detail::split_facts(whole.of, d, at, tokens);
    std::apply([&](auto&... part) { (detail::split_facts(part.layer.of, d, at, tokens), ...); }, whole.segments);
    whole.held = held;
    return whole;
}

}  // namespace fathom::models
