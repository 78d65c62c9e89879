// What must hold between the facts of a model, each broken rule one sentence with the facts in the notes after it.
#pragma once

#include <fathom/models/words.hpp>

namespace fathom::rule {

template <class... Words> struct only_model_words {
    static_assert((model_word<Words> && ...),
                  "fathom: a model is described by model words only. fix: use words such as hidden_size<N>; layouts "
                  "and precision belong "
                  "to mesh<> and precision<>.");
    static_assert(!(model_word<Words> && ...) || detail::distinct<typename detail::stem<Words>::type...>::value,
                  "fathom: a word is given twice. fix: keep one of the two.");
};

template <class VocabSize, class HiddenSize, class Layers, class Heads> struct sizes_are_given {
    static_assert(VocabSize::value > 0 && HiddenSize::value > 0 && Layers::value > 0 && Heads::value > 0,
                  "fathom: a model needs its sizes. fix: give vocab_size<N>, hidden_size<N>, num_hidden_layers<N> and "
                  "num_attention_heads<N>, all above 0.");
};

template <class Latent, class Nope, class Rope, class Value> struct latent_sizes_are_given {
    static_assert(Latent::value > 0 && Nope::value > 0 && Rope::value > 0 && Value::value > 0,
                  "fathom: latent attention needs its widths. fix: give kv_lora_rank<N>, qk_nope_head_dim<N>, "
                  "qk_rope_head_dim<N> and "
                  "v_head_dim<N>, all above 0.");
};

template <class QueryLatent> struct latent_is_no_less_than_nothing {
    static_assert(
        QueryLatent::value >= 0,
        "fathom: q_lora_rank cannot be negative. fix: q_lora_rank<0> (or no word) means queries without a latent.");
};

template <class Rope> struct rotary_width_is_even {
    static_assert(Rope::value % 2 == 0,
                  "fathom: rotary embeddings turn pairs, so their width must be even. fix: pick an even "
                  "qk_rope_head_dim<N> or head_dim<N>.");
};

/// The width of a head that no word gives: 0 where hidden_size does not divide, which is another rule's business.
constexpr integer shared_width(integer hidden, integer heads) {
    return heads > 0 && hidden % heads == 0 ? hidden / heads : 0;
}

template <class Heads, class KeyValueHeads> struct heads_divide_over_key_value_heads {
    static_assert(KeyValueHeads::value > 0 && Heads::value % (KeyValueHeads::value > 0 ? KeyValueHeads::value : 1) == 0,
                  "fathom: attention heads must divide evenly over key-value heads. fix: pick num_key_value_heads<N> "
                  "where N divides "
                  "num_attention_heads.");
};

template <class HiddenSize, class Heads, class HeadDim> struct hidden_size_divides_over_heads {
    static_assert(HeadDim::value > 0 || Heads::value <= 0 ||
                      HiddenSize::value % (Heads::value > 0 ? Heads::value : 1) == 0,
                  "fathom: hidden_size must divide evenly over attention heads. fix: pick num_attention_heads<N> that "
                  "divides it, or give head_dim<N>.");
};

template <class Layers, class Dense> struct dense_layers_are_among_the_layers {
    static_assert(
        Dense::value >= 0 && Dense::value <= Layers::value,
        "fathom: more dense layers than layers. fix: pick first_k_dense_replace<N> between 0 and num_hidden_layers.");
};

template <class Layers, class Dense, class Intermediate> struct dense_layers_have_a_width {
    static_assert(Dense::value <= 0 || Intermediate::value > 0,
                  "fathom: dense layers need a width. fix: give intermediate_size<N> above 0.");
};

template <class Experts, class Width, class TopK> struct experts_are_given {
    static_assert(
        Experts::value > 0 && Width::value > 0 && TopK::value > 0,
        "fathom: layers of experts need their sizes. fix: give n_routed_experts<N>, moe_intermediate_size<N> and "
        "num_experts_per_tok<N>, all above 0, or make every layer dense.");
};

template <class Experts, class TopK> struct no_more_chosen_than_experts {
    static_assert(Experts::value <= 0 || TopK::value <= Experts::value,
                  "fathom: a token cannot choose more experts than there are. fix: pick num_experts_per_tok<N> of at "
                  "most n_routed_experts.");
};

template <class Experts, class Groups> struct experts_divide_into_groups {
    static_assert(Groups::value > 0 && Experts::value % (Groups::value > 0 ? Groups::value : 1) == 0,
                  "fathom: routed experts must divide evenly into groups. fix: pick n_group<N> where N divides "
                  "n_routed_experts.");
};

template <class Groups, class Kept> struct no_more_groups_than_there_are {
    static_assert(
        Kept::value > 0 && Kept::value <= Groups::value,
        "fathom: a token cannot keep more groups than there are. fix: pick topk_group<N> between 1 and n_group.");
};

template <class Experts, class Groups, class Kept, class TopK> struct kept_groups_hold_enough_experts {
    static_assert(Groups::value <= 0 ||
                      TopK::value <= Kept::value * (Experts::value / (Groups::value > 0 ? Groups::value : 1)) ||
                      TopK::value > Experts::value || Kept::value > Groups::value,
                  "fathom: the groups that a token keeps hold fewer experts than it chooses. fix: raise topk_group<N>, "
                  "or lower n_group<N> or "
                  "num_experts_per_tok<N>.");
};

template <class Experts, class Groups> struct groups_score_by_two {
    static_assert(Experts::value <= 0 || Groups::value <= 1 || Experts::value / Groups::value >= 2,
                  "fathom: groups are scored by their best two experts, so each must hold two. fix: lower n_group<N> "
                  "to at most half of "
                  "n_routed_experts.");
};

template <class Depths> struct few_prediction_depths {
    static_assert(Depths::value >= 0 && Depths::value <= models::max_prediction_depths,
                  "fathom: multi-token prediction goes to depth 8 at most. fix: pick num_nextn_predict_layers<N> "
                  "between 0 and 8.");
};

}  // namespace fathom::rule
