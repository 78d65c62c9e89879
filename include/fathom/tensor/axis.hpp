// What the rows and columns of a matrix mean, as types, so that a product over the wrong axis does not compile; sizes
// stay numbers.
#pragma once

#include <fathom/core/bytes.hpp>

namespace fathom {

/// The axes that layers name. An axis is a meaning, not a size: two models share the code of a layer and its axes.
namespace axis {
struct tokens;         // the tokens of a micro-batch, sequence after sequence
struct expert_tokens;  // (token, expert) pairs, expert after expert: a ragged axis
struct vocabulary;     // ids of the tokenizer
struct hidden;         // hidden_size: the residual stream
struct latent_input;   // what one product of an attention layer's input gives: queries or their latent, kv latent,
                       // shared rotary key
struct q_latent;       // q_lora_rank
struct kv_latent;      // kv_lora_rank
struct rotary;         // qk_rope_head_dim
struct queries;        // heads x (qk_nope_head_dim + qk_rope_head_dim), or heads x head_dim
struct keys_values;    // heads x (qk_nope_head_dim + v_head_dim)
struct queries_keys_values;  // (heads + 2 kv heads) x head_dim
struct values;               // heads x v_head_dim
struct gate_up;              // gate and up, one after the other: 2 x intermediate size
struct intermediate;         // intermediate size
struct experts;              // n_routed_experts
struct two_hidden;           // 2 x hidden_size: what a multi-token prediction module joins
struct one;                  // a single row: gains and biases
}  // namespace axis

}  // namespace fathom
