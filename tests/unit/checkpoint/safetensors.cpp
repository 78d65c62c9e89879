#include "fathom/checkpoint/safetensors.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "../scratch_folder.hpp"

namespace st = fathom::safetensors;
using fathom::test::contents, fathom::test::message_of, fathom::test::scratch_folder, fathom::test::source_file;

namespace {

template <class T>
st::stored_tensor tensor(std::string name, st::dtype type, std::vector<std::int64_t> shape,
                         const std::vector<T>& values) {
    return {std::move(name), type, std::move(shape), std::as_bytes(std::span{values}), {}};
}

}  // namespace

TEST_CASE("the reference's files are read") {
    const st::file weights{source_file("tests/oracle/v3_plain/model.safetensors")};
    const auto& norm = weights.at("model.norm.weight");
    CHECK(norm.type == st::dtype::f32);
    CHECK(norm.shape == std::vector<std::int64_t>{32});
    CHECK(weights.metadata() == st::strings{{"format", "pt"}});

    const st::file io{source_file("tests/oracle/v3_plain/io.safetensors")};
    double loss = 0;
    st::read_as<double>(io.at("loss"), std::span{&loss, 1});
    CHECK(loss == doctest::Approx(5.195626353149327).epsilon(1e-12));
    const auto& ids = io.at("input_ids");
    std::vector<std::int64_t> tokens(ids.size());
    st::read_as<std::int64_t>(ids, tokens);
    CHECK(tokens[0] == 99);
    CHECK(tokens.back() == 51);
    CHECK(weights.find("model.norm") == nullptr);
    CHECK(message_of([&] { (void)weights.at("model.norm"); }) ==
          fathom::text_of(weights.path(), ": found no tensor \"model.norm\" among ", weights.tensors().size(),
                          ", expected it"));
}

TEST_CASE("what is written reads back, aligned, and again to the same bytes") {
    const scratch_folder folder;
    const std::vector<std::uint8_t> flags{1, 0, 1};
    const std::vector<std::uint16_t> halves{0x3F80, 0x4000};
    const std::vector<double> wide{1, 2, 3, 4, 5, 6};
    const std::vector<float> none;
    const std::vector<st::stored_tensor> tensors{
        tensor("flags", st::dtype::boolean, {3}, flags), tensor("é\n\"", st::dtype::bf16, {2, 1}, halves),
        tensor("scalar", st::dtype::i64, {}, std::vector<std::int64_t>{}), tensor("wide", st::dtype::f64, {2, 3}, wide),
        tensor("none", st::dtype::f32, {0, 7}, none)};
    const std::vector<std::int64_t> seven{7};
    auto all = tensors;
    all[2].bytes = std::as_bytes(std::span{seven});
    st::write(folder / "a", all, {{"format", "pt"}, {"note", "漢"}});
    const st::file read{folder / "a"};
    CHECK(read.metadata() == st::strings{{"format", "pt"}, {"note", "漢"}});
    REQUIRE(read.tensors().size() == all.size());
    for (const auto& written : all) {
        const auto& found = read.at(written.name);
        CHECK(found.type == written.type);
        CHECK(found.shape == written.shape);
        REQUIRE(found.bytes.size() == written.bytes.size());
        CHECK(std::equal(found.bytes.begin(), found.bytes.end(), written.bytes.begin()));
        CHECK(reinterpret_cast<std::uintptr_t>(found.bytes.data()) % st::size_of(found.type) == 0);
    }
    st::write(folder / "b", read.tensors(), read.metadata());
    CHECK(contents(folder / "a") == contents(folder / "b"));
    CHECK(contents(folder / "a").substr(8, 17) == "{\"__metadata__\":{");
}

TEST_CASE("tensors stay valid when their file object moves") {
    st::file first{source_file("tests/oracle/v3_plain/io.safetensors")};
    const auto bytes = first.at("loss").bytes;
    const st::file second{std::move(first)};
    CHECK(second.at("loss").bytes.data() == bytes.data());
    CHECK(second.at("loss").file == second.path());
}

TEST_CASE("a tensor that cannot be written is named and nothing is written") {
    const scratch_folder folder;
    const std::vector<float> two{1, 2};
    const std::string path = folder / "a", start = path + ": tensor \"w\": ";
    const auto refused = [&](std::vector<st::stored_tensor> tensors) {
        return message_of([&] { st::write(path, tensors); });
    };
    CHECK(refused({tensor("w", st::dtype::f32, {3}, two)}) == start + "found 8 bytes, expected 12 for F32 [3]");
    CHECK(refused({tensor("w", st::dtype::f32, {-2}, two)}) == start + "found shape [-2], expected no negative extent");
    CHECK(refused({tensor("w", st::dtype::f32, {2}, two), tensor("w", st::dtype::f32, {2}, two)}) ==
          start + "found a second time, expected each name once");
    CHECK(refused({tensor("__metadata__", st::dtype::f32, {2}, two)}) ==
          path + ": tensor \"__metadata__\": found the name that the format keeps for itself, expected another");
    CHECK(folder.entries() == 0);
}
