// Where queries, keys and values lie, so that attention reads them where a projection left them, and leaves their
// gradients where its backward wants them.
#pragma once

#include <fathom/ops/attention/attention_facts.hpp>
#include <fathom/tensor/matrix.hpp>

namespace fathom::ops {

/// Views of T (of const T to read). k and v may be views of one matrix: what `kv_b_proj` of multi-head latent attention
/// gives, kv[tokens, heads * (nope + v)] with heads as [nope | v], is k = kv, v = kv.columns_at(nope, ...), both
/// strides nope + v.
template <class T> struct attention_operands {
    matrix<T> q;  // q[tokens, heads * qk_dim]
    matrix<T> k;  // kv head h has qk_dim - shared_dim columns from h * k_head_stride on
    integer k_head_stride = 0;
    matrix<T> shared;  // shared[tokens, shared_dim]: the end of every head's key
    matrix<T> v;       // kv head h has v_dim columns from h * v_head_stride on
    integer v_head_stride = 0;
};

template <class T> using attention_inputs = attention_operands<const T>;
template <class T> using attention_gradients = attention_operands<T>;

}  // namespace fathom::ops
