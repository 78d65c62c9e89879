// Copies, sums and scales for GPUs: what joins operations to each other, in pieces of rows.
#pragma once

#include <fathom/core/bytes.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/block/memory.hpp>
#include <fathom/device/block/qualifier.hpp>

namespace fathom::ops {

namespace detail {

/// Numbers of a row that a block takes.
inline constexpr integer numbers_a_block = 4096;

/// Calls visit(row, column) for the piece of rows x width numbers that is this block's, in grids of this many blocks.
constexpr integer row_piece_blocks(integer rows, integer width) { return rows * pieces(width, numbers_a_block); }
template <class Block, class Visit>
FATHOM_DEVICE void each_of_piece(const Block& block, integer width, const Visit& visit) {
    const integer of_row = pieces(width, numbers_a_block), row = block.block_rank() / of_row;
    const integer first = block.block_rank() % of_row * numbers_a_block;
    const integer end = first + numbers_a_block < width ? first + numbers_a_block : width;
    for (integer c = first + block.thread_rank(); c < end; c += block.size()) visit(row, c);
}

/// As the host's `copy` converts: by way of the accumulators.
template <class To, class From> FATHOM_DEVICE To from_number(From value) {
    return static_cast<To>(static_cast<accumulator_t<To>>(static_cast<accumulator_t<From>>(value)));
}

}  // namespace detail

/// `copy`: to[M, W] = from[M, W], converted.
template <class To, class From> struct copy_kernel {
    static constexpr const char* name = "copy";
    static constexpr int threads = 256;
    static constexpr integer blocks(integer rows, integer width) { return detail::row_piece_blocks(rows, width); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, To> to,
                                  device::rows<Block, const From> from) const {
        detail::each_of_piece(block, to.width, [&](integer r, integer c) {
            to(r, c) = detail::from_number<To, From>(static_cast<From>(from(r, c)));
        });
    }
};

/// `add`: y[M, W] += x[M, W].
template <class T, class From> struct add_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "add";
    static constexpr int threads = 256;
    static constexpr integer blocks(integer rows, integer width) { return detail::row_piece_blocks(rows, width); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, T> y, device::rows<Block, const From> x) const {
        detail::each_of_piece(block, y.width, [&](integer r, integer c) {
            const A more = detail::from_number<A, From>(static_cast<From>(x(r, c)));
            y(r, c) = static_cast<T>(static_cast<A>(static_cast<T>(y(r, c))) + more);
        });
    }
};

/// `scale`: y[M, W] = factor * y.
template <class T> struct scale_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "scale";
    static constexpr int threads = 256;
    static constexpr integer blocks(integer rows, integer width) { return detail::row_piece_blocks(rows, width); }

    template <class Block> FATHOM_DEVICE void operator()(Block& block, device::rows<Block, T> y, double factor) const {
        detail::each_of_piece(block, y.width, [&](integer r, integer c) {
            y(r, c) = static_cast<T>(static_cast<A>(static_cast<T>(y(r, c))) * static_cast<A>(factor));
        });
    }
};

/// `sum_parts`: to[M, W] (+)= the columns of `parts` parts of from[M, ...], `step` apart, in order.
template <class T> struct sum_parts_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "sum_parts";
    static constexpr int threads = 256;
    static constexpr integer blocks(integer rows, integer width) { return detail::row_piece_blocks(rows, width); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, T> to, bool accumulate,
                                  device::rows<Block, const T> from, integer parts, integer step) const {
        detail::each_of_piece(block, to.width, [&](integer r, integer c) {
            A sum{};
            for (integer p = 0; p < parts; ++p) sum += static_cast<A>(static_cast<T>(from(r, p * step + c)));
            to(r, c) = static_cast<T>(accumulate ? static_cast<A>(static_cast<T>(to(r, c))) + sum : sum);
        });
    }
};

}  // namespace fathom::ops
