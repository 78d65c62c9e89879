// The sizes of attention that tell latent from grouped-query attention, so that one operation serves both.
#pragma once

#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>

namespace fathom::ops {

/// Query head h attends with the keys and values of kv head h / (heads / kv_heads). The last `shared_dim` of a key's
/// `qk_dim` numbers are the same for all kv heads (the rotary key of multi-head latent attention; 0 for grouped
/// queries). `scale` multiplies the scores.
struct attention_facts {
    integer heads = 0;
    integer kv_heads = 0;
    integer qk_dim = 0;
    integer v_dim = 0;
    integer shared_dim = 0;
    double scale = 1;
};

/// Fails unless heads divide into kv heads and the shared part fits in a key.
inline void check(const attention_facts& facts) {
    if (facts.kv_heads < 1 || facts.heads % facts.kv_heads != 0)
        fail("attention: found ", facts.heads, " heads over ", facts.kv_heads,
             " kv heads, expected a multiple of a positive number");
    if (facts.shared_dim < 0 || facts.shared_dim > facts.qk_dim)
        fail("attention: found a shared part of ", facts.shared_dim, " in keys of ", facts.qk_dim);
}

}  // namespace fathom::ops
