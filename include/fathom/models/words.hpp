// The words that describe a model: each is a fact under the name that a Hugging Face config.json gives it.
#pragma once

#include <fathom/models/config.hpp>
#include <type_traits>

namespace fathom {

/// A real number as a template argument: written as 2.5, printed as decimal{2.5}.
struct decimal {
    double value;
    constexpr decimal(double v) : value(v) {}  // NOLINT(google-explicit-constructor): words read as numbers
    constexpr decimal(int v) : value(v) {}     // NOLINT(google-explicit-constructor)
};

using models::model_config;

// --- sizes

template <integer N> struct vocab_size {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.vocab_size = N; }
};
template <integer N> struct hidden_size {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.hidden_size = N; }
};
template <integer N> struct num_hidden_layers {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.num_hidden_layers = N; }
};
template <integer N> struct first_k_dense_replace {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.first_k_dense_replace = N; }
};
template <integer N> struct num_attention_heads {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.num_attention_heads = N; }
};
template <integer N> struct num_key_value_heads {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.num_key_value_heads = N; }
};
template <integer N> struct head_dim {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.head_dim = N; }
};
template <integer N> struct q_lora_rank {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.q_lora_rank = N; }
};
template <integer N> struct kv_lora_rank {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.kv_lora_rank = N; }
};
template <integer N> struct qk_nope_head_dim {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.qk_nope_head_dim = N; }
};
template <integer N> struct qk_rope_head_dim {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.qk_rope_head_dim = N; }
};
template <integer N> struct v_head_dim {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.v_head_dim = N; }
};
template <integer N> struct intermediate_size {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.intermediate_size = N; }
};
template <integer N> struct moe_intermediate_size {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.moe_intermediate_size = N; }
};
template <integer N> struct n_routed_experts {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.n_routed_experts = N; }
};
template <integer N> struct num_experts_per_tok {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.num_experts_per_tok = N; }
};
template <integer N> struct n_shared_experts {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.n_shared_experts = N; }
};
template <integer N> struct n_group {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.n_group = N; }
};
template <integer N> struct topk_group {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.topk_group = N; }
};
template <integer N> struct num_nextn_predict_layers {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.num_nextn_predict_layers = N; }
};
template <integer N> struct max_position_embeddings {
    static constexpr integer value = N;
    static constexpr void set(model_config& c) { c.max_position_embeddings = N; }
};

// --- switches and real numbers

template <bool On> struct norm_topk_prob {
    static constexpr void set(model_config& c) { c.norm_topk_prob = On; }
};
template <bool On> struct tie_word_embeddings {
    static constexpr void set(model_config& c) { c.tie_word_embeddings = On; }
};
template <bool On> struct attention_bias {
    static constexpr void set(model_config& c) { c.attention_bias = On; }
};
template <bool On> struct rope_interleave {
    static constexpr void set(model_config& c) { c.rope_interleave = On; }
};
template <decimal X> struct routed_scaling_factor {
    static constexpr void set(model_config& c) { c.routed_scaling_factor = X.value; }
};
template <decimal X> struct rms_norm_eps {
    static constexpr void set(model_config& c) { c.rms_norm_eps = X.value; }
};
template <decimal X> struct initializer_range {
    static constexpr void set(model_config& c) { c.initializer_range = X.value; }
};
template <decimal X> struct rope_theta {
    static constexpr void set(model_config& c) { c.rope.theta = X.value; }
};

// --- rotary scaling

template <decimal X> struct factor {
    static constexpr void set(model_config& c) { c.rope.factor = X.value; }
};
template <integer N> struct original_max_position_embeddings {
    static constexpr void set(model_config& c) { c.rope.original_max_position_embeddings = N; }
};
template <decimal X> struct beta_fast {
    static constexpr void set(model_config& c) { c.rope.beta_fast = X.value; }
};
template <decimal X> struct beta_slow {
    static constexpr void set(model_config& c) { c.rope.beta_slow = X.value; }
};
template <decimal X> struct mscale {
    static constexpr void set(model_config& c) { c.rope.mscale = X.value; }
};
template <decimal X> struct mscale_all_dim {
    static constexpr void set(model_config& c) { c.rope.mscale_all_dim = X.value; }
};

/// Positions divided by a factor: linear_rope<factor<4>>.
template <class... Words> struct linear_rope {
    static constexpr void set(model_config& c) {
        c.rope.kind = ops::rope_facts::scaling::linear;
        (Words::set(c), ...);
    }
};
/// YaRN: yarn<factor<40>, original_max_position_embeddings<4096>, mscale<1>, mscale_all_dim<1>>.
template <class... Words> struct yarn {
    static constexpr void set(model_config& c) {
        c.rope.kind = ops::rope_facts::scaling::yarn;
        (Words::set(c), ...);
    }
};

/// A type that states a fact of a model.
template <class Word>
concept model_word = requires(model_config& c) {
    Word::set(c);
};

namespace detail {

/// The first of Words that is a Word<N>, or Word<Default>.
template <template <integer> class Word, integer Default, class... Words> struct find_word {
    using type = Word<Default>;
};
template <template <integer> class Word, integer Default, integer N, class... Words>
struct find_word<Word, Default, Word<N>, Words...> {
    using type = Word<N>;
};
template <template <integer> class Word, integer Default, class First, class... Words>
struct find_word<Word, Default, First, Words...> : find_word<Word, Default, Words...> {};

template <template <integer> class Word, integer Default, class... Words>
using word_of = typename find_word<Word, Default, Words...>::type;

template <class... Words> struct distinct : std::true_type {};
template <class First, class... Words>
struct distinct<First, Words...>
    : std::bool_constant<!(std::is_same_v<First, Words> || ...) && distinct<Words...>::value> {};

/// A word without its argument, to tell two uses of one word; both kinds of rotary scaling are one word.
template <class Word> struct stem { using type = Word; };
template <template <integer> class Word, integer N> struct stem<Word<N>> { using type = Word<0>; };
template <template <bool> class Word, bool On> struct stem<Word<On>> { using type = Word<false>; };
template <template <decimal> class Word, decimal X> struct stem<Word<X>> { using type = Word<decimal{1}>; };
template <class... Words> struct stem<linear_rope<Words...>> { using type = yarn<>; };
template <class... Words> struct stem<yarn<Words...>> { using type = yarn<>; };

/// Sets what words say; others are a broken rule's business.
template <class Word> constexpr void set_if_known(model_config& c) {
    if constexpr (model_word<Word>) Word::set(c);
}
template <class... Words> constexpr model_config configured(model_config c) {
    (set_if_known<Words>(c), ...);
    return c;
}

}  // namespace detail
}  // namespace fathom
