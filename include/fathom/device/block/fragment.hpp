// Who holds what in a matrix product of a warp: the register layouts of mma.sync.m16n8k16 and ldmatrix, as PTX's manual
// draws them.
#pragma once

#include <cstdint>

namespace fathom::device {

/// a[16, 16] in bf16: register r of a lane holds columns k, k + 1 of one row, the lower column in the lower half.
struct fragment_a {
    std::uint32_t registers[4];
    static constexpr int row(int lane, int r) { return lane / 4 + 8 * (r % 2); }
    static constexpr int k(int lane, int r) { return 2 * (lane % 4) + 8 * (r / 2); }
};

/// b[16, 8] in bf16: register r of a lane holds rows k, k + 1 of one column.
struct fragment_b {
    std::uint32_t registers[2];
    static constexpr int k(int lane, int r) { return 2 * (lane % 4) + 8 * r; }
    static constexpr int column(int lane, int) { return lane / 4; }
};

/// c[16, 8] in fp32: the sums.
struct fragment_c {
    float registers[4];
    static constexpr int row(int lane, int r) { return lane / 4 + 8 * (r / 2); }
    static constexpr int column(int lane, int r) { return 2 * (lane % 4) + r % 2; }
};

}  // namespace fathom::device
