// Where the keys and values of earlier tokens lie, so that one operation reads every kind of cache.
#pragma once

#include <fathom/tensor/matrix.hpp>

namespace fathom::ops {

/// Token t of sequence s is row s * capacity + t. kv head h has the key columns from h * k_head_stride on and the value
/// columns from h * v_head_stride on; both may view one matrix: a latent serves as key and, in its front part, as
/// value.
template <class T> struct attention_cache {
    matrix<const T> k;
    integer k_head_stride = 0;
    matrix<const T> v;
    integer v_head_stride = 0;
    integer capacity = 0;
};

}  // namespace fathom::ops
