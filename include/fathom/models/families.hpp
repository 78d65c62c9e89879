// The DeepSeek families as lists of words: what a user derives a model from, and how a described model becomes a
// transformer.
#pragma once

#include <fathom/models/block_kinds.hpp>
#include <fathom/models/rules.hpp>
#include <fathom/models/transformer.hpp>
#include <fathom/models/words.hpp>

namespace fathom {

namespace models {

/// Dense feed-forward layers first, experts after them.
template <class T, bool Latent, bool Split>
constexpr auto dense_then_experts(const model_config& c, const nn::recomputation& again, const auto& attention) {
    using dense = block_of<T, Latent, false, Split>;
    using mixture = block_of<T, Latent, true, Split>;
    return std::tuple{
        segment<dense>{{{c.hidden_size, c.rms_norm_eps, attention, dense_facts(c)}, again}, 0, c.first_k_dense_replace},
        segment<mixture>{
            {{c.hidden_size, c.rms_norm_eps, attention, typename mixture::feed_forward::facts{experts_facts(c)}},
             again},
            c.first_k_dense_replace,
            c.num_hidden_layers - c.first_k_dense_replace}};
}

template <class T, class... Blocks>
constexpr transformer<T, Blocks...> assemble(const model_config& c, const nn::recomputation& again,
                                             const std::tuple<segment<Blocks>...>& parts) {
    return {.of = {.vocab_size = c.vocab_size,
                   .hidden_size = c.hidden_size,
                   .max_position_embeddings = c.max_position_embeddings,
                   .num_nextn_predict_layers = c.num_nextn_predict_layers,
                   .rms_norm_eps = c.rms_norm_eps,
                   .initializer_range = c.initializer_range,
                   .tie_word_embeddings = c.tie_word_embeddings,
                   .rope = c.rotary()},
            .again = again,
            .segments = parts};
}

/// The kinds of blocks of a family: one type of transformer for all models of the same kinds, whatever their sizes;
/// and another where ranks split it.
struct latent_family {
    template <class T, bool Split = false>
    static constexpr auto transformer(const model_config& c, const nn::recomputation& again = {}) {
        return assemble<T>(c, again, dense_then_experts<T, true, Split>(c, again, latent_attention_facts(c)));
    }
};
struct grouped_query_experts_family {
    template <class T, bool Split = false>
    static constexpr auto transformer(const model_config& c, const nn::recomputation& again = {}) {
        return assemble<T>(c, again, dense_then_experts<T, false, Split>(c, again, grouped_query_attention_facts(c)));
    }
};
struct grouped_query_family {
    template <class T, bool Split = false>
    static constexpr auto transformer(const model_config& c, const nn::recomputation& again = {}) {
        using dense = block_of<T, false, false, Split>;
        return assemble<T>(
            c, again,
            std::tuple{segment<dense>{
                {{c.hidden_size, c.rms_norm_eps, grouped_query_attention_facts(c), dense_facts(c)}, again},
                0,
                c.num_hidden_layers}});
    }
};

}  // namespace models

namespace rule {

template <class... W>
struct language_model
    : only_model_words<W...>,
      sizes_are_given<detail::word_of<vocab_size, 0, W...>, detail::word_of<hidden_size, 0, W...>,
                      detail::word_of<num_hidden_layers, 0, W...>, detail::word_of<num_attention_heads, 0, W...>>,
      few_prediction_depths<detail::word_of<num_nextn_predict_layers, 0, W...>> {};

template <class... W>
struct latent_attention
    : latent_sizes_are_given<detail::word_of<kv_lora_rank, 0, W...>, detail::word_of<qk_nope_head_dim, 0, W...>,
                             detail::word_of<qk_rope_head_dim, 0, W...>, detail::word_of<v_head_dim, 0, W...>>,
      latent_is_no_less_than_nothing<detail::word_of<q_lora_rank, 0, W...>>,
      rotary_width_is_even<detail::word_of<qk_rope_head_dim, 0, W...>> {};

template <class... W>
struct grouped_query_attention
    : heads_divide_over_key_value_heads<
          detail::word_of<num_attention_heads, 1, W...>,
          detail::word_of<num_key_value_heads, detail::word_of<num_attention_heads, 1, W...>::value, W...>>,
      hidden_size_divides_over_heads<detail::word_of<hidden_size, 0, W...>,
                                     detail::word_of<num_attention_heads, 1, W...>, detail::word_of<head_dim, 0, W...>>,
      rotary_width_is_even<head_dim<detail::word_of<head_dim,
                                                    shared_width(detail::word_of<hidden_size, 0, W...>::value,
                                                                 detail::word_of<num_attention_heads, 1, W...>::value),
                                                    W...>::value>> {};

/// Whether a model has blocks of experts: after the dense ones, or to predict with.
constexpr bool any_experts(integer layers, integer dense, integer depths) { return layers > dense || depths > 0; }
template <bool Any, class... W> struct experts_when_any {};
template <class... W>
struct experts_when_any<true, W...>
    : experts_are_given<detail::word_of<n_routed_experts, 0, W...>, detail::word_of<moe_intermediate_size, 0, W...>,
                        detail::word_of<num_experts_per_tok, 0, W...>>,
      no_more_chosen_than_experts<detail::word_of<n_routed_experts, 0, W...>,
                                  detail::word_of<num_experts_per_tok, 0, W...>>,
      experts_divide_into_groups<detail::word_of<n_routed_experts, 0, W...>, detail::word_of<n_group, 1, W...>>,
      no_more_groups_than_there_are<detail::word_of<n_group, 1, W...>, detail::word_of<topk_group, 1, W...>>,
      kept_groups_hold_enough_experts<detail::word_of<n_routed_experts, 0, W...>, detail::word_of<n_group, 1, W...>,
                                      detail::word_of<topk_group, 1, W...>,
                                      detail::word_of<num_experts_per_tok, 0, W...>> {};

template <class... W>
struct dense_then_experts : dense_layers_are_among_the_layers<detail::word_of<num_hidden_layers, 0, W...>,
                                                              detail::word_of<first_k_dense_replace, 0, W...>>,
                            dense_layers_have_a_width<detail::word_of<num_hidden_layers, 0, W...>,
                                                      detail::word_of<first_k_dense_replace, 0, W...>,
                                                      detail::word_of<intermediate_size, 0, W...>>,
                            experts_when_any<any_experts(detail::word_of<num_hidden_layers, 0, W...>::value,
                                                         detail::word_of<first_k_dense_replace, 0, W...>::value,
                                                         detail::word_of<num_nextn_predict_layers, 0, W...>::value),
                                             W...> {};

}  // namespace rule

/// DeepSeek-V3 (and R1): latent attention, sigmoid routing with a selection bias, renormalised weights.
template <class... Words>
struct deepseek_v3
    : rule::language_model<Words...>,
      rule::latent_attention<Words...>,
      rule::dense_then_experts<Words...>,
      rule::groups_score_by_two<detail::word_of<n_routed_experts, 0, Words...>, detail::word_of<n_group, 1, Words...>> {
    using family = models::latent_family;
    static consteval model_config config() {
        return detail::configured<Words...>(
            {.type = models::family::deepseek_v3, .routed_scaling_factor = 2.5, .norm_topk_prob = true});
    }
};

/// DeepSeek-V2 and V2-Lite: latent attention, softmax routing without renormalisation.
template <class... Words>
struct deepseek_v2 : rule::language_model<Words...>,
                     rule::latent_attention<Words...>,
                     rule::dense_then_experts<Words...> {
    using family = models::latent_family;
    static consteval model_config config() {
        return detail::configured<Words...>({.type = models::family::deepseek_v2});
    }
};

/// DeepSeekMoE: multi-head attention, softmax routing.
template <class... Words>
struct deepseek_moe : rule::language_model<Words...>,
                      rule::grouped_query_attention<Words...>,
                      rule::dense_then_experts<Words...> {
    using family = models::grouped_query_experts_family;
    static consteval model_config config() {
        return detail::configured<Words...>({.type = models::family::deepseek_moe});
    }
};

/// DeepSeek LLM: Llama's architecture, dense, grouped-query attention.
template <class... Words>
struct deepseek_llm : rule::language_model<Words...>,
                      rule::grouped_query_attention<Words...>,
                      rule::dense_layers_have_a_width<detail::word_of<num_hidden_layers, 0, Words...>,
                                                      detail::word_of<num_hidden_layers, 0, Words...>,
                                                      detail::word_of<intermediate_size, 0, Words...>> {
    using family = models::grouped_query_family;
    static consteval model_config config() { return detail::configured<Words...>({.type = models::family::llama}); }
};

}  // namespace fathom
