// Models written layer by layer: beneath the families, for those who want other layers in another order.
#pragma once

#include <fathom/models/families.hpp>

namespace fathom {

namespace detail {

template <class Word, class... Known>
inline constexpr bool is_one_of = (std::is_same_v<typename stem<Word>::type, typename stem<Known>::type> || ...);

template <class Word>
inline constexpr bool speaks_of_latent_attention =
    is_one_of<Word, num_attention_heads<0>, q_lora_rank<0>, kv_lora_rank<0>, qk_nope_head_dim<0>, qk_rope_head_dim<0>,
              v_head_dim<0>, attention_bias<false>, rope_interleave<false>>;
template <class Word>
inline constexpr bool speaks_of_grouped_attention =
    is_one_of<Word, num_attention_heads<0>, num_key_value_heads<0>, head_dim<0>, attention_bias<false>>;
template <class Word> inline constexpr bool speaks_of_dense = is_one_of<Word, intermediate_size<0>>;
template <class Word>
inline constexpr bool speaks_of_experts =
    is_one_of<Word, moe_intermediate_size<0>, n_routed_experts<0>, num_experts_per_tok<0>, n_shared_experts<0>,
              n_group<0>, topk_group<0>, norm_topk_prob<false>, routed_scaling_factor<1>>;
template <class Word>
inline constexpr bool speaks_of_the_whole =
    is_one_of<Word, vocab_size<0>, hidden_size<0>, num_hidden_layers<0>, num_nextn_predict_layers<0>,
              max_position_embeddings<0>, tie_word_embeddings<false>, rms_norm_eps<1>, initializer_range<1>,
              rope_theta<1>, yarn<>>;

}  // namespace detail

namespace rule {

template <bool InPlace, class... Words> struct words_say_something {
    static_assert(InPlace,
                  "fathom: a word stands where it says nothing. fix: widths of attention belong in attention::..., of "
                  "feed-forward layers in feed_forward::..., and what concerns the whole model in language_model<>.");
};
template <bool Is, class Attention, class FeedForward> struct block_is_attention_and_feed_forward {
    static_assert(Is,
                  "fathom: a block is attention, then a feed-forward layer. fix: block<attention::latent<...>, "
                  "feed_forward::experts<...>>.");
};
template <bool Is, class Block> struct repeat_is_of_blocks {
    static_assert(Is,
                  "fathom: repeat<> takes a number of layers and a block. fix: repeat<N, block<...>> with N above 0.");
};
template <class Layers> struct repeats_are_given {
    static_assert(
        Layers::value > 0,
        "fathom: a composed model has no layers. fix: give language_model<> one repeat<N, block<...>> or more.");
};
template <class Layers, class Sum> struct repeats_add_up {
    static_assert(Layers::value == 0 || Sum::value == 0 || Layers::value == Sum::value,
                  "fathom: the layers of the repeats do not add up to num_hidden_layers. fix: change a repeat<N, ...>, "
                  "or leave num_hidden_layers<N> out.");
};
struct nothing_more {};
/// One table of angles serves all layers.
template <bool Agree, class... Widths> struct layers_turn_alike {
    static_assert(Agree,
                  "fathom: attention layers of one model must turn equally wide heads. fix: give all the same "
                  "qk_rope_head_dim<N>, or head_dim<N>.");
};

}  // namespace rule

/// Kinds of attention.
namespace attention {

/// Multi-head latent attention: latent<num_attention_heads<8>, q_lora_rank<96>, kv_lora_rank<64>, ...>.
template <class... Words>
struct latent : rule::only_model_words<Words...>,
                rule::words_say_something<(detail::speaks_of_latent_attention<Words> && ...), Words...>,
                rule::latent_attention<Words...>,
                rule::sizes_are_given<vocab_size<1>, hidden_size<1>, num_hidden_layers<1>,
                                      detail::word_of<num_attention_heads, 0, Words...>> {
    static constexpr bool is_attention = true, is_latent = true;
    template <class HiddenSize> using rules = rule::nothing_more;
    static constexpr model_config configured(model_config c) {
        c.type = models::family::deepseek_v3;
        return detail::configured<Words...>(c);
    }
    static constexpr auto facts(const model_config& c) { return models::latent_attention_facts(configured(c)); }
};

/// Grouped-query attention: grouped_query<num_attention_heads<32>, num_key_value_heads<8>>.
template <class... Words>
struct grouped_query : rule::only_model_words<Words...>,
                       rule::words_say_something<(detail::speaks_of_grouped_attention<Words> && ...), Words...>,
                       rule::sizes_are_given<vocab_size<1>, hidden_size<1>, num_hidden_layers<1>,
                                             detail::word_of<num_attention_heads, 0, Words...>> {
    static constexpr bool is_attention = true, is_latent = false;
    template <class HiddenSize> using rules = rule::grouped_query_attention<HiddenSize, Words...>;
    static constexpr model_config configured(model_config c) {
        c.type = models::family::llama;
        return detail::configured<Words...>(c);
    }
    static constexpr auto facts(const model_config& c) { return models::grouped_query_attention_facts(configured(c)); }
};

}  // namespace attention

/// Kinds of feed-forward layers.
namespace feed_forward {

/// SwiGLU: dense<intermediate_size<704>>.
template <class... Words>
struct dense : rule::only_model_words<Words...>,
               rule::words_say_something<(detail::speaks_of_dense<Words> && ...), Words...>,
               rule::dense_layers_have_a_width<num_hidden_layers<1>, first_k_dense_replace<1>,
                                               detail::word_of<intermediate_size, 0, Words...>> {
    static constexpr bool is_feed_forward = true, is_sparse = false, is_sigmoid = true;
    static constexpr model_config configured(const model_config& c) { return detail::configured<Words...>(c); }
    static constexpr auto facts(const model_config& c, bool) { return models::dense_facts(configured(c)); }
};

/// Experts as in V3: sigmoid scores, a selection bias, renormalised weights.
template <class... Words>
struct experts
    : rule::only_model_words<Words...>,
      rule::words_say_something<(detail::speaks_of_experts<Words> && ...), Words...>,
      rule::experts_when_any<true, Words...>,
      rule::groups_score_by_two<detail::word_of<n_routed_experts, 0, Words...>, detail::word_of<n_group, 1, Words...>> {
    static constexpr bool is_feed_forward = true, is_sparse = true, is_sigmoid = true;
    static constexpr model_config configured(model_config c) {
        c.routed_scaling_factor = 2.5;
        c.norm_topk_prob = true;
        return detail::configured<Words...>(c);
    }
    static constexpr auto facts(model_config c, bool) {
        c.type = models::family::deepseek_v3;
        return models::experts_facts(configured(c));
    }
};

/// Experts as in DeepSeekMoE and V2: softmax scores, no bias.
template <class... Words>
struct softmax_experts : rule::only_model_words<Words...>,
                         rule::words_say_something<(detail::speaks_of_experts<Words> && ...), Words...>,
                         rule::experts_when_any<true, Words...> {
    static constexpr bool is_feed_forward = true, is_sparse = true, is_sigmoid = false;
    static constexpr model_config configured(const model_config& c) { return detail::configured<Words...>(c); }
    static constexpr auto facts(model_config c, bool latent) {
        c.type = latent ? models::family::deepseek_v2 : models::family::deepseek_moe;
        return models::experts_facts(configured(c));
    }
};

}  // namespace feed_forward

namespace detail {

template <class T> struct is_attention : std::bool_constant < requires { T::is_attention; } > {};
template <class T> struct is_feed_forward : std::bool_constant < requires { T::is_feed_forward; } > {};
template <class T> struct is_block : std::false_type {};

}  // namespace detail

/// One layer: block<attention::latent<...>, feed_forward::experts<...>>.
template <class Attention, class FeedForward>
struct block : rule::block_is_attention_and_feed_forward<detail::is_attention<Attention>::value &&
                                                             detail::is_feed_forward<FeedForward>::value,
                                                         Attention, FeedForward> {};
template <class Attention, class FeedForward>
struct detail::is_block<block<Attention, FeedForward>> : std::true_type {};

/// N equal layers.
template <integer N, class Block>
struct repeat : rule::repeat_is_of_blocks<(N > 0 && detail::is_block<Block>::value), Block> {};

namespace models {

/// repeat<N, block<A, F>> taken apart.
template <class Repeat> struct repeat_parts;
template <integer N, class A, class F> struct repeat_parts<repeat<N, block<A, F>>> {
    using attention = A;
    using feed_forward = F;
    static constexpr integer layers = N;
};

/// A config without what belongs to single layers.
constexpr model_config whole_of(const model_config& c) {
    return {.vocab_size = c.vocab_size,
            .hidden_size = c.hidden_size,
            .num_hidden_layers = c.num_hidden_layers,
            .num_nextn_predict_layers = c.num_nextn_predict_layers,
            .max_position_embeddings = c.max_position_embeddings,
            .rms_norm_eps = c.rms_norm_eps,
            .initializer_range = c.initializer_range,
            .tie_word_embeddings = c.tie_word_embeddings,
            .rope = c.rope};
}

/// Layers as they were composed; the types of blocks are those of the families.
template <class First, class... Rest> struct composed_family {
    template <class T, bool Split = false>
    static constexpr auto transformer(const model_config& c, const nn::recomputation& again = {}) {
        const model_config whole = whole_of(c);
        integer first = 0;
        auto model = assemble<T>(
            c, again,
            std::tuple{layers<T, Split, First>(whole, again, first), layers<T, Split, Rest>(whole, again, first)...});
        model.of.rope = repeat_parts<First>::attention::configured(whole).rotary();
        return model;
    }
    /// All attention is written alike, dense layers come first and alike, then experts alike: a family says the same.
    static constexpr bool is_of_one_family() {
        bool sparse = false, ordered = true;
        const auto follow = [&](bool next) {
            ordered = ordered && (next || !sparse);
            sparse = next;
        };
        follow(repeat_parts<First>::feed_forward::is_sparse);
        (follow(repeat_parts<Rest>::feed_forward::is_sparse), ...);
        return ordered && alike<First, Rest...>();
    }
    static constexpr model_config config(model_config c) {
        constexpr bool latent = repeat_parts<First>::attention::is_latent;
        c.num_hidden_layers = 0;
        bool sigmoid = true, sparse = false;
        const auto add = [&]<class R>(const R*) {
            c = R::feed_forward::configured(R::attention::configured(c));
            c.num_hidden_layers += R::layers;
            if (!R::feed_forward::is_sparse) c.first_k_dense_replace += R::layers;
            sigmoid = sigmoid && R::feed_forward::is_sigmoid;
            sparse = sparse || R::feed_forward::is_sparse;
        };
        add(static_cast<const repeat_parts<First>*>(nullptr));
        (add(static_cast<const repeat_parts<Rest>*>(nullptr)), ...);
        if (!is_of_one_family() || (!latent && sparse && sigmoid))
            c.type = family::composed;
        else if (latent)
            c.type = sigmoid ? family::deepseek_v3 : family::deepseek_v2;
        else
            c.type = sparse ? family::deepseek_moe : family::llama;
        return c;
    }

  private:
    template <class T, bool Split, class Repeat>
    static constexpr auto layers(const model_config& whole, const nn::recomputation& again, integer& first) {
        using part = repeat_parts<Repeat>;
        using kind = block_of<T, part::attention::is_latent, part::feed_forward::is_sparse, Split>;
        const integer from = first;
        first += part::layers;
        return segment<kind>{
            {{whole.hidden_size, whole.rms_norm_eps, part::attention::facts(whole),
              typename kind::feed_forward::facts{part::feed_forward::facts(whole, part::attention::is_latent)}},
             again},
            from,
            part::layers};
    }
    template <class A, class B> static constexpr bool same_kind_same_words() {
        using a = typename repeat_parts<A>::feed_forward;
        using b = typename repeat_parts<B>::feed_forward;
        return std::is_same_v<typename repeat_parts<A>::attention, typename repeat_parts<B>::attention> &&
               (a::is_sparse != b::is_sparse || std::is_same_v<a, b>);
    }
    template <class A, class... B> static constexpr bool alike() {
        bool all = (same_kind_same_words<A, B>() && ...);
        if constexpr (sizeof...(B) > 0) all = all && alike<B...>();
        return all;
    }
};

}  // namespace models

namespace detail {

template <class T> inline constexpr bool is_repeat = false;
template <integer N, class Block> inline constexpr bool is_repeat<repeat<N, Block>> = true;
template <class T> inline constexpr integer layers_of = 0;
template <integer N, class Block> inline constexpr integer layers_of<repeat<N, Block>> = N;

template <class... T> struct types {};
/// Words and repeats, each in their order.
template <class Words, class Repeats, class... Rest> struct sorted_words {
    using words = Words;
    using repeats = Repeats;
};
template <class... W, class... R, class First, class... Rest>
struct sorted_words<types<W...>, types<R...>, First, Rest...>
    : std::conditional_t<is_repeat<First>, sorted_words<types<W...>, types<R..., First>, Rest...>,
                         sorted_words<types<W..., First>, types<R...>, Rest...>> {};

template <class T> inline constexpr bool is_sound_repeat = false;
/// sizeof asks block and repeat for their own rules, which a type that is only named would keep to itself.
template <integer N, class Block>
inline constexpr bool is_sound_repeat<repeat<N, Block>> = sizeof(repeat<N, Block>) > 0 && sizeof(Block) > 0 && false;
template <integer N, class A, class F>
inline constexpr bool is_sound_repeat<repeat<N, block<A, F>>> =
    sizeof(repeat<N, block<A, F>>) > 0 &&
    sizeof(block<A, F>) > 0 && N > 0 && is_attention<A>::value&& is_feed_forward<F>::value;

template <bool Sound, class Words, class... Repeats> struct composed {
    // What a broken description stands for, so that it is one error.
    using family = models::latent_family;
    static consteval model_config config() { return {}; }
};
template <class... W, class First, class... Rest> struct composed<true, types<W...>, First, Rest...> {
    using family = models::composed_family<First, Rest...>;
    static consteval model_config config() { return family::config(configured<W...>({})); }
};

}  // namespace detail

namespace rule {

/// What layers ask of the model that they are part of.
template <bool Sound, class HiddenSize, class... Repeats> struct repeats_fit_the_model {};
template <class HiddenSize, class First, class... Rest> struct repeats_fit_the_model<true, HiddenSize, First, Rest...> {
    template <class R> using attention_of = typename models::repeat_parts<R>::attention;
    template <class R>
    static constexpr integer turning = attention_of<R>::configured({.hidden_size = HiddenSize::value}).rotary().dim;
    // sizeof looks at each rule, also where two layers share one.
    static constexpr bool holds = sizeof(typename attention_of<First>::template rules<HiddenSize>) > 0 &&
                                  ((sizeof(typename attention_of<Rest>::template rules<HiddenSize>) > 0) && ...) &&
                                  sizeof(layers_turn_alike<((turning<First> == turning<Rest>)&&...),
                                                           attention_of<First>, attention_of<Rest>...>) > 0;
    static_assert(holds);
};

template <class Words, class Repeats> struct composed_model;
template <class... W, class... R>
struct composed_model<detail::types<W...>, detail::types<R...>>
    : only_model_words<W...>,
      words_say_something<((detail::speaks_of_the_whole<W> || !model_word<W>)&&...), W...>,
      sizes_are_given<detail::word_of<vocab_size, 0, W...>, detail::word_of<hidden_size, 0, W...>, num_hidden_layers<1>,
                      num_attention_heads<1>>,
      few_prediction_depths<detail::word_of<num_nextn_predict_layers, 0, W...>>,
      repeats_are_given<num_hidden_layers<(detail::layers_of<R> + ... + 0)>>,
      repeats_add_up<detail::word_of<num_hidden_layers, 0, W...>, num_hidden_layers<(detail::layers_of<R> + ... + 0)>>,
      repeats_fit_the_model<(sizeof...(R) > 0 && (detail::is_sound_repeat<R> && ...)),
                            detail::word_of<hidden_size, 0, W...>, R...> {};

}  // namespace rule

namespace detail {

template <class Words, class Repeats> struct composed_of;
template <class... W, class... R>
struct composed_of<types<W...>, types<R...>>
    : composed<(sizeof...(R) > 0 && (is_sound_repeat<R> && ...)), types<W...>, R...> {};

}  // namespace detail

/// A model of any layers: language_model<vocab_size<N>, hidden_size<N>, repeat<1, block<...>>, repeat<5, block<...>>>.
/// Words of the whole model and repeats in any order; num_hidden_layers may be left out. It is the same transformer as
/// a family's with these layers.
template <class... Words>
struct language_model
    : rule::composed_model<typename detail::sorted_words<detail::types<>, detail::types<>, Words...>::words,
                           typename detail::sorted_words<detail::types<>, detail::types<>, Words...>::repeats> {
  private:
    using sorted = detail::sorted_words<detail::types<>, detail::types<>, Words...>;
    using composed = detail::composed_of<typename sorted::words, typename sorted::repeats>;

  public:
    using family = typename composed::family;
    static consteval model_config config() { return composed::config(); }
};

}  // namespace fathom
