#include "fathom/checkpoint/safetensors.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "../scratch_folder.hpp"

namespace st = fathom::safetensors;
using fathom::test::contents, fathom::test::message_of, fathom::test::put, fathom::test::scratch_folder,
    fathom::test::source_file;

namespace {

std::string with_length(std::uint64_t length, std::string_view rest) {
    std::string file(sizeof length, '\0');
    std::memcpy(file.data(), &length, sizeof length);
    return file.append(rest);
}

/// The message for a file with this header and `bytes` bytes of data, without the path before it.
std::string refusal(const std::string& file) {
    const scratch_folder folder;
    const std::string path = folder / "x.safetensors";
    put(path, file);
    const std::string message = message_of([&] { st::file{path}; });
    if (message == "no error") return message;
    REQUIRE(message.starts_with(path + ": "));
    return message.substr(path.size() + 2);
}
std::string refusal(const std::string& header, std::size_t bytes) {
    return refusal(with_length(header.size(), header + std::string(bytes, 'x')));
}

}  // namespace

TEST_CASE("hostile safetensors: the control of these cases is accepted") {
    const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
    const std::string b = R"("b":{"dtype":"U8","shape":[],"data_offsets":[4,5]})";
    CHECK(refusal("{" + a + "," + b + "}", 5) == "no error");
    CHECK(refusal("{}", 0) == "no error");
    CHECK(refusal(R"({"a":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]}}   )", 0) == "no error");
}

TEST_CASE("hostile safetensors: the length of the header is bounded by the file") {
    CHECK(refusal("") == "found 0 bytes, expected a safetensors file: 8 bytes of header length and a header");
    CHECK(refusal("1234567") == "found 7 bytes, expected a safetensors file: 8 bytes of header length and a header");
    CHECK(refusal(with_length(std::uint64_t{1} << 63, "{}")) ==
          "found a header length of 9223372036854775808, expected at most 2 (a whole safetensors file?)");
    CHECK(refusal(with_length(~std::uint64_t{0}, "{}")).starts_with("found a header length of 18446744073709551615"));
    CHECK(refusal(with_length(3, "{}")) ==
          "found a header length of 3, expected at most 2 (a whole safetensors file?)");
    const scratch_folder folder;
    put(folder / "x", with_length(100'000'001, "{}"));
    std::filesystem::resize_file(folder / "x", 200'000'000);
    CHECK(message_of([&] { st::file{folder / "x"}; }).find("expected at most 100000000") != std::string::npos);
    CHECK(refusal(with_length(0, "")) == "header:1:1: found the end of the file, expected a value");
}

TEST_CASE("hostile safetensors: the header is strict JSON of the expected kinds") {
    const std::pair<std::string, std::string> cases[] = {
        {"<html>", "header:1:1: found '<', expected a value"},
        {"[]", "header:1:1: found an array of 0, expected an object"},
        {"{}x", "header:1:3: found 'x', expected the end of the file"},
        {std::string(2'000, '['), "header:1:130: found more than 128 levels of nesting, expected fewer"},
        {R"({"a":{},"a":{}})", "header:1:13: found the member \"a\" a second time, expected each name once"},
        {"{\"\xFF\":{}}", "header:1:3: found the byte 0xFF, expected UTF-8"},
        {R"({"__metadata__":{"a":1}})", "header:1:22: found the integer 1, expected a string"},
        {R"({"__metadata__":"a"})", "header:1:17: found the string \"a\", expected an object"},
        {R"({"a":[]})", "tensor \"a\": header:1:6: found an array of 0, expected an object"},
        {R"({"a":{}})", "tensor \"a\": header:1:6: found an object without \"dtype\", expected that member"},
        {R"({"a":{"dtype":"F32","shape":[1]}})",
         "tensor \"a\": header:1:6: found an object without \"data_offsets\", expected that member"},
        {R"({"a":{"dtype":"F32","strides":[1]}})",
         "tensor \"a\": header:1:31: found the member \"strides\", expected dtype, shape and data_offsets only"},
        {R"({"a":{"dtype":4,"shape":[1],"data_offsets":[0,4]}})",
         "tensor \"a\": header:1:15: found the integer 4, expected a string"},
        {R"({"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}})",
         "tensor \"a\": found dtype \"C64\", expected one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL F8_E4M3 F8_E5M2"},
    };
    for (const auto& [header, message] : cases) CHECK(refusal(header, 4) == message);
}

TEST_CASE("hostile safetensors: shapes are counted without overflow") {
    const auto shape = [](const std::string& text) {
        return refusal(R"({"a":{"dtype":"F32","shape":)" + text + R"(,"data_offsets":[0,4]}})", 4);
    };
    CHECK(shape("[1]") == "no error");
    CHECK(shape("[]") == "no error");
    CHECK(shape("[2]") == "tensor \"a\": found 4 bytes, expected 8 for F32 [2]");
    CHECK(shape("[0]") == "tensor \"a\": found 4 bytes, expected 0 for F32 [0]");
    CHECK(shape("[-1]") == "tensor \"a\": found shape [-1], expected no negative extent");
    CHECK(shape("[-1, -1]") == "tensor \"a\": found shape [-1, -1], expected no negative extent");
    CHECK(shape("[4611686018427387905]") ==
          "tensor \"a\": found shape [4611686018427387905] of F32, expected fewer than 2^64 bytes");
    CHECK(shape("[4294967296, 4294967296, 0]") ==
          "tensor \"a\": found shape [4294967296, 4294967296, 0] of F32, expected fewer than 2^64 bytes");
    CHECK(shape("[18446744073709551617]") ==
          "tensor \"a\": header:1:30: found the number 1.84467e+19, expected an integer of 64 bits");
    CHECK(shape("[1.0]") == "tensor \"a\": header:1:30: found the number 1, expected an integer of 64 bits");
    CHECK(shape("[\"1\"]") == "tensor \"a\": header:1:30: found the string \"1\", expected an integer of 64 bits");
    CHECK(shape("1") == "tensor \"a\": header:1:29: found the integer 1, expected an array");
}

TEST_CASE("hostile safetensors: offsets stay inside the file") {
    const auto offsets = [](const std::string& text) {
        return refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + text + "}}", 4);
    };
    const auto message = [](const std::string& text) {
        return "tensor \"a\": found data_offsets " + text +
               ", expected them in order and within the 4 bytes of data in the file";
    };
    CHECK(offsets("[0,4]") == "no error");
    for (const char* bad : {"[0, 5]", "[1, 5]", "[4, 0]", "[-4, 0]", "[9223372036854775807, 9223372036854775807]",
                            "[0, 9223372036854775807]"})
        CHECK(offsets(bad) == message(bad));
    CHECK(offsets("[0]") == "tensor \"a\": found 1 data_offsets, expected 2");
    CHECK(offsets("[0,4,8]") == "tensor \"a\": found 3 data_offsets, expected 2");
    CHECK(offsets("[0,18446744073709551615]") ==
          "tensor \"a\": header:1:51: found the number 1.84467e+19, expected an integer of 64 bits");
}

TEST_CASE("hostile safetensors: every byte belongs to one tensor") {
    const auto two = [](const std::string& first, const std::string& second, std::size_t bytes) {
        return refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
                           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}",
                       bytes);
    };
    CHECK(two("[0,4]", "[4,8]", 8) == "no error");
    CHECK(two("[4,8]", "[0,4]", 8) == "no error");
    CHECK(two("[0,4]", "[3,7]", 7) ==
          "tensor \"b\": found data that overlaps tensor \"a\" by 1 bytes, expected none shared");
    CHECK(two("[0,4]", "[0,4]", 4).ends_with("by 4 bytes, expected none shared"));
    CHECK(two("[0,4]", "[6,10]", 10) == "tensor \"b\": found 2 bytes of no tensor before its data, expected none");
    CHECK(two("[1,5]", "[5,9]", 9) == "tensor \"a\": found 1 bytes of no tensor before its data, expected none");
    CHECK(two("[0,4]", "[4,8]", 9) == "found 1 bytes after the last tensor, expected the end of the file");
}

TEST_CASE("hostile safetensors: a file cut at any byte is refused") {
    const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    const std::string whole = with_length(header.size(), header + "12345678");
    REQUIRE(refusal(whole) == "no error");
    for (std::size_t length = 0; length < whole.size(); ++length) CHECK(refusal(whole.substr(0, length)) != "no error");
}

TEST_CASE("hostile safetensors: a changed byte of a header gives tensors within the file or an error") {
    const std::string whole = contents(source_file("tests/oracle/rope_tables/rope.safetensors"));
    const scratch_folder folder;
    const std::string path = folder / "x.safetensors";
    for (std::size_t at = 0; at < 600; ++at) {
        for (const char change : {'\x01', '\x10', '\x80'}) {
            std::string file = whole;
            file[at] = static_cast<char>(file[at] ^ change);
            put(path, file);
            std::size_t bytes = 0;
            const std::string message = message_of([&] {
                const st::file read{path};
                for (const auto& tensor : read.tensors()) bytes += tensor.bytes.size();
            });
            CHECK((message == "no error" ? bytes < whole.size() : message.starts_with(path)));
        }
    }
}
