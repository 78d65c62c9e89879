// Where attention's kernels find the operands of a head, whatever they multiply with.
#pragma once

#include <fathom/core/bytes.hpp>
#include <fathom/device/block/qualifier.hpp>
#include <fathom/ops/attention/attention_facts.hpp>

namespace fathom::ops::detail::attention {

/// Where the operands of one head of one sequence lie.
template <class Rows> struct head_operands {
    Rows k, shared, v;
    integer own, k_column, v_column, origin;

    FATHOM_DEVICE auto key(integer token, integer c) const {
        return c < own ? k.row(origin + token) + (k_column + c) : shared.row(origin + token) + (c - own);
    }
    FATHOM_DEVICE auto value(integer token, integer c) const { return v.row(origin + token) + (v_column + c); }
};

/// What kernels know of the sizes besides their own: where heads lie in the rows of operands.
struct kernel_facts {
    attention_facts facts;
    integer length = 0;  // of a sequence
    integer k_head_stride = 0, v_head_stride = 0;

    /// What query head `head` reads of the sequence that begins with token `origin`.
    template <class Rows>
    FATHOM_DEVICE head_operands<Rows> operands(integer head, integer origin, const Rows& k, const Rows& shared,
                                               const Rows& v) const {
        const integer kv_head = head / (facts.heads / facts.kv_heads);
        return {k,     shared, v, facts.qk_dim - facts.shared_dim, kv_head * k_head_stride, kv_head * v_head_stride,
                origin};
    }
};

/// Whether rows come in pieces of 16 bytes and scores grow with their products.
constexpr bool takes(const kernel_facts& of, integer qk_dim, integer v_dim) {
    const attention_facts& f = of.facts;
    return f.qk_dim == qk_dim && f.v_dim == v_dim && f.shared_dim % 8 == 0 && of.k_head_stride % 8 == 0 &&
           of.v_head_stride % 8 == 0 && f.scale > 0;
}

}  // namespace fathom::ops::detail::attention
