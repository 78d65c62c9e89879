// The words of training<> that say how ranks share state, tokens and sequences.
#pragma once

#include <fathom/models/share.hpp>
#include <fathom/models/words.hpp>

namespace fathom {

/// The ZeRO stage: what is sharded over the data axes. 0: nothing, 1: the optimizer's state, 2: gradients of blocks,
/// too, 3: weights of blocks, too. A block is whole where it works; ends and modules of multi-token prediction always
/// are.
template <integer N> struct zero { static constexpr integer value = N; };
/// ZeRO shards over N neighbouring data ranks, as those of one node are; others have copies of these shards.
template <integer N> struct shard_within { static constexpr integer value = N; };

/// Rows that a rank reserves for the tokens of its experts, over those that an even load brings: expert_tokens<2.5>.
/// More come in further rounds.
template <decimal Ratio> struct expert_tokens {
    static constexpr double value = Ratio.value;
    static constexpr void set(models::share_choices& c) { c.expert_tokens = Ratio.value; }
};
/// A rank of experts takes at most this many times an even load from each other rank and drops the rows of the lowest
/// scores, as DeepSeek-V2 trained: capacity_factor<1.0>. Without it nothing is dropped.
template <decimal Ratio> struct capacity_factor {
    static constexpr double value = Ratio.value;
    static constexpr void set(models::share_choices& c) { c.capacity_factor = Ratio.value; }
};
/// Context ranks pass keys and values around a ring (Liu et al., "Ring attention", 2023), instead of gathering them.
struct context_ring {
    static constexpr double value = 1;
    static constexpr void set(models::share_choices& c) { c.exchange = nn::context_exchange::ring; }
};

namespace rule {

template <class Word> struct expert_rows_are_reserved {
    static_assert(Word::value > 0,
                  "fathom: experts need rows for their tokens. fix: pick expert_tokens<R> above 0; 2.0 reserves twice "
                  "what an even load brings.");
};
template <class Word> struct capacity_is_above_nothing {
    static_assert(Word::value > 0,
                  "fathom: a capacity of nothing drops every token. fix: pick capacity_factor<R> above 0, or leave it "
                  "out: nothing is dropped then.");
};
template <class Word, bool Split> struct choice_has_ranks {
    static_assert(
        Split,
        "fathom: a word of training<> is about ranks that split a model, and the mesh splits none. fix: give the "
        "mesh ep<N>, tp<N>, cp<N> or pp<N>, or leave expert_tokens<R>, capacity_factor<R> and context_ring out.");
};

}  // namespace rule
}  // namespace fathom
