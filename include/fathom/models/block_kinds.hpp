// The kinds of blocks that models are made of, each whole and as ranks split it: the one table of what stands for what.
#pragma once

#include <fathom/nn/block.hpp>
#include <fathom/nn/context_grouped_query_attention.hpp>
#include <fathom/nn/context_latent_attention.hpp>
#include <fathom/nn/dispatched_experts.hpp>
#include <fathom/nn/experts.hpp>
#include <fathom/nn/feed_forward.hpp>
#include <fathom/nn/grouped_query_attention.hpp>
#include <fathom/nn/latent_attention.hpp>

namespace fathom::models {

namespace detail {

template <class T, bool Latent, bool Sparse, bool Split> struct block_kind;
template <class T> struct block_kind<T, true, false, false> {
    using type = nn::block<T, nn::latent_attention, nn::feed_forward>;
};
template <class T> struct block_kind<T, true, true, false> {
    using type = nn::block<T, nn::latent_attention, nn::experts>;
};
template <class T> struct block_kind<T, false, false, false> {
    using type = nn::block<T, nn::grouped_query_attention, nn::feed_forward>;
};
template <class T> struct block_kind<T, false, true, false> {
    using type = nn::block<T, nn::grouped_query_attention, nn::experts>;
};
template <class T> struct block_kind<T, true, false, true> {
    using type = nn::block<T, nn::context_latent_attention, nn::feed_forward, true>;
};
template <class T> struct block_kind<T, true, true, true> {
    using type = nn::block<T, nn::context_latent_attention, nn::dispatched_experts, true>;
};
template <class T> struct block_kind<T, false, false, true> {
    using type = nn::block<T, nn::context_grouped_query_attention, nn::feed_forward, true>;
};
template <class T> struct block_kind<T, false, true, true> {
    using type = nn::block<T, nn::context_grouped_query_attention, nn::dispatched_experts, true>;
};

}  // namespace detail

/// A block with latent or grouped-query attention and with experts or a dense feed-forward layer; where ranks split it,
/// its classes for that.
template <class T, bool Latent, bool Sparse, bool Split = false>
using block_of = typename detail::block_kind<T, Latent, Sparse, Split>::type;

}  // namespace fathom::models
