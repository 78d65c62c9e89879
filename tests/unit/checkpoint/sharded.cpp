#include "fathom/checkpoint/sharded.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "../scratch_folder.hpp"

namespace st = fathom::safetensors;
using fathom::test::contents, fathom::test::message_of, fathom::test::put, fathom::test::scratch_folder,
    fathom::test::source_file;

namespace {

/// Five tensors a, b, c, d, e of 8 bytes each.
struct five {
    std::vector<std::vector<float>> values;
    std::vector<st::stored_tensor> tensors;
    five() {
        for (int i = 0; i < 5; ++i) values.push_back({static_cast<float>(i), static_cast<float>(-i)});
        for (std::size_t i = 0; i < 5; ++i)
            tensors.push_back({std::string(1, static_cast<char>('a' + i)),
                               st::dtype::f32,
                               {2},
                               std::as_bytes(std::span{values[i]}),
                               {}});
    }
};

void replace(const std::string& path, std::string_view from, std::string_view to) {
    std::string text = contents(path);
    const auto at = text.find(from);
    REQUIRE(at != text.npos);
    put(path, text.replace(at, from.size(), to));
}

}  // namespace

TEST_CASE("a single file is a model") {
    const auto model = st::open_model_directory(source_file("tests/oracle/v3_plain"));
    CHECK(model.files().size() == 1);
    CHECK(model.at("lm_head.weight").shape.size() == 2);
}

TEST_CASE("shards and their index are one model") {
    const scratch_folder folder;
    const five data;
    st::write_sharded(folder.path(), data.tensors, 16, {{"format", "pt"}});
    CHECK(folder.entries() == 4);
    CHECK(contents(folder / "model.safetensors.index.json")
              .starts_with("{\n  \"metadata\": {\n    \"total_size\": 40\n"));
    const auto model = st::open_model_directory(folder.path());
    CHECK(model.files().size() == 3);
    REQUIRE(model.tensors().size() == 5);
    CHECK(model.at("c").file == (folder / "model-00002-of-00003.safetensors"));
    for (const auto& written : data.tensors)
        CHECK(std::equal(written.bytes.begin(), written.bytes.end(), model.at(written.name).bytes.begin()));
    CHECK(message_of([&] { (void)model.at("f"); }) == folder.path() + ": found no tensor \"f\" among 5, expected it");
    CHECK(message_of([&] { st::write_sharded(folder.path(), data.tensors, 16); }) ==
          folder.path() + ": found a model there already, expected a folder without one; nothing was changed");
}

TEST_CASE("the size of shards is a bound that only a larger tensor breaks") {
    const five data;
    const auto shards = [&](std::uint64_t most_bytes) {
        const scratch_folder folder;
        st::write_sharded(folder.path(), data.tensors, most_bytes);
        return st::open_model_directory(folder.path()).files().size();
    };
    CHECK(shards(40) == 1);
    CHECK(shards(39) == 2);
    CHECK(shards(8) == 5);
    CHECK(shards(1) == 5);
}

TEST_CASE("an index that disagrees with its shards is refused") {
    const scratch_folder folder;
    five data;
    st::write_sharded(folder.path(), data.tensors, 16);
    const std::string index = folder / "model.safetensors.index.json";
    const std::string first = folder / "model-00001-of-00003.safetensors",
                      last = folder / "model-00003-of-00003.safetensors";
    const auto refusal = [&] { return message_of([&] { (void)st::open_model_directory(folder.path()); }); };

    SUBCASE("a missing shard") {
        std::filesystem::remove(last);
        CHECK(refusal() ==
              index + ": tensor \"e\": found the shard \"model-00003-of-00003.safetensors\", which is missing");
    }
    SUBCASE("a tensor in two shards") {
        data.tensors[4].name = "a";
        st::write(last, std::span{data.tensors}.subspan(4));
        CHECK(refusal().find("tensor \"a\": found it in ") != std::string::npos);
        CHECK(refusal().find("too, expected it in one shard") != std::string::npos);
    }
    SUBCASE("a name that its shard lacks") {
        data.tensors[4].name = "z";
        st::write(last, std::span{data.tensors}.subspan(4));
        CHECK(refusal() == index + ": tensor \"e\": found it in no shard, expected it in " + last);
    }
    SUBCASE("a name in another shard") {
        replace(index, "\"a\": \"model-00001", "\"a\": \"model-00002");
        CHECK(refusal() == index + ": tensor \"a\": found it in " + first + ", expected it in " +
                               (folder / "model-00002-of-00003.safetensors"));
    }
    SUBCASE("a tensor that the index lacks") {
        replace(index, "\"a\": \"model-00001-of-00003.safetensors\",", "");
        CHECK(refusal() == first + ": tensor \"a\": found it in the shard, expected it in the weight_map of " + index);
    }
    SUBCASE("a path that leaves the folder") {
        for (const char* path : {"../x.safetensors", "/etc/passwd", "sub/x", "..", ""}) {
            put(index, fathom::text_of("{\"weight_map\": {\"a\": \"", path, "\"}}"));
            CHECK(refusal() == fathom::text_of(index, ":1:22: tensor \"a\": found the shard \"", path,
                                               "\", expected a file in the folder itself"));
        }
    }
    SUBCASE("a name twice") {
        replace(index, "\"b\"", "\"a\"");
        CHECK(refusal().ends_with("found the member \"a\" a second time, expected each name once"));
    }
    SUBCASE("no weight map") {
        put(index, "{}");
        CHECK(refusal() == index + ":1:1: found an object without \"weight_map\", expected that member");
    }
    SUBCASE("a single file beside it") {
        st::write(folder / "model.safetensors", data.tensors);
        CHECK(refusal() ==
              folder.path() + ": found both model.safetensors and model.safetensors.index.json, expected one of them");
    }
    SUBCASE("neither") {
        std::filesystem::remove(index);
        CHECK(refusal() ==
              folder.path() +
                  ": found neither model.safetensors nor model.safetensors.index.json, expected one of them");
    }
}
