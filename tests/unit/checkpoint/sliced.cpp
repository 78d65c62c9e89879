// Matrices in slices over files: any slice is read out of any others, and what does not fit together is refused.
#include "fathom/checkpoint/sliced.hpp"

#include <doctest/doctest.h>

#include "../scratch_folder.hpp"
#include "fathom/checkpoint/assembled.hpp"

namespace fathom {
namespace {

using checkpoint::assembled_matrices;
using checkpoint::slice;
using checkpoint::sliced_matrices;
using safetensors::dtype;
using test::message_of;

/// Number (r, c) of the matrix `whole` is 100 r + c.
std::vector<float> numbers_of(const slice& s) {
    std::vector<float> all;
    for (integer r = 0; r < s.rows; ++r)
        for (integer c = 0; c < s.columns; ++c) all.push_back(static_cast<float>(100 * (s.row + r) + s.column + c));
    return all;
}
slice cut(integer row, integer column, integer rows, integer columns) {
    return {"m", false, 5, 7, row, column, rows, columns};
}
void write(const std::string& path, const std::vector<slice>& slices) {
    std::vector<std::vector<float>> numbers;
    std::vector<safetensors::stored_tensor> tensors;
    for (const slice& s : slices) numbers.push_back(numbers_of(s));
    for (std::size_t i = 0; i < slices.size(); ++i)
        tensors.push_back({slices[i].stored_name(),
                           dtype::f32,
                           slices[i].shape(),
                           std::as_bytes(std::span<const float>{numbers[i]}),
                           {}});
    safetensors::write(path, tensors);
}
std::vector<float> read(const sliced_matrices& from, const slice& s) {
    std::vector<float> all(static_cast<std::size_t>(s.size()), -1.0F);
    from.copy(s, dtype::f32, reinterpret_cast<std::byte*>(all.data()));
    return all;
}

}  // namespace

TEST_CASE("any slice is read out of any others") {
    const test::scratch_folder folder;
    const slice gain{"gain", true, 4, 1, 0, 0, 4, 1};
    write(folder / "a", {cut(0, 0, 2, 3), cut(2, 0, 3, 3), gain});
    write(folder / "b", {cut(0, 3, 1, 4), cut(1, 3, 1, 1), cut(1, 4, 1, 3), cut(2, 3, 3, 4)});
    const sliced_matrices all{{folder / "a", folder / "b"}};
    CHECK(all.numbers() == 5 * 7 + 4);
    CHECK(read(all, gain) == numbers_of(gain));
    for (integer row = 0; row < 5; ++row)
        for (integer column = 0; column < 7; ++column)
            for (integer rows = 1; rows <= 5 - row; ++rows)
                for (integer columns = 1; columns <= 7 - column; ++columns) {
                    const slice wanted = cut(row, column, rows, columns);
                    if (read(all, wanted) != numbers_of(wanted)) CHECK(wanted.stored_name() == "read");
                }
    const assembled_matrices whole{all, folder / "joined"};
    REQUIRE(whole.tensors().size() == 2);
    CHECK(whole.tensors()[0].name == "gain");
    CHECK(whole.tensors()[1].name == "m");
    CHECK(whole.tensors()[1].shape == std::vector<std::int64_t>{5, 7});
    std::vector<float> found(35);
    safetensors::read_as<float>(whole.tensors()[1], found);
    CHECK(found == numbers_of(cut(0, 0, 5, 7)));
}

TEST_CASE("slices that do not make a matrix are refused, and so are other matrices than are there") {
    const test::scratch_folder folder;
    write(folder / "a", {cut(0, 0, 2, 7)});
    write(folder / "b", {cut(2, 0, 3, 7)});
    write(folder / "other", {{"m", false, 5, 8, 2, 0, 3, 8}});
    const auto opened = [&](const char* second) {
        return message_of([&] { sliced_matrices{{folder / "a", folder / second}}; });
    };
    CHECK(opened("b") == "no error");
    CHECK(opened("a").find("found 28 numbers in 2 slices, expected the 35 of [5, 7]") != std::string::npos);
    CHECK(opened("other").find("found a slice of [5, 8] F32, expected one of [5, 7] F32 as in ") != std::string::npos);
    const sliced_matrices all{{folder / "a", folder / "b"}};
    CHECK(message_of([&] {
              read(all, {"n", false, 1, 1, 0, 0, 1, 1});
          }).find("found no tensor \"n\" among 2") != std::string::npos);
    CHECK(message_of([&] {
              read(all, {"m", false, 5, 6, 0, 0, 1, 1});
          }).find("found shape [5, 7] and type F32, expected [5, 6] and F32") != std::string::npos);
    std::byte to[8];
    CHECK(message_of([&] { all.copy(cut(0, 0, 1, 1), dtype::f64, to); }).find("expected [5, 7] and F64") !=
          std::string::npos);
    // Twice the upper rows and never the lower ones: as many numbers as the matrix has.
    write(folder / "half", {cut(0, 0, 5, 3)});
    write(folder / "again", {cut(0, 0, 5, 3)});
    write(folder / "rest", {cut(0, 3, 5, 1)});
    const sliced_matrices twice{{folder / "half", folder / "again", folder / "rest"}};
    CHECK(message_of([&] { read(twice, cut(0, 4, 1, 1)); }).find("found 0 numbers of m[0,4 of 5,7], expected 1") !=
          std::string::npos);
}

}  // namespace fathom
