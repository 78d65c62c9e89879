#include "fathom/core/json.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "../scratch_folder.hpp"

namespace json = fathom::json;
using fathom::test::message_of;

TEST_CASE("json: every kind of value is read") {
    const auto root = json::parse(
        " {\"null\": null, \"yes\": true, \"no\":false, \"int\": -12, \"real\": 2.5e-3, \"text\": "
        "\"a\\n\\u00e9\\ud83d\\ude00漢\",\r\n"
        "\t\"list\": [1, [2], {}], \"empty\": []} \n",
        "a.json");
    CHECK(root.size() == 8);
    CHECK(root.at("null").is_null());
    CHECK(root.at("yes").as_bool());
    CHECK_FALSE(root.at("no").as_bool());
    CHECK(root.at("int").as_int() == -12);
    CHECK(root.at("int").as_number() == -12.0);
    CHECK(root.at("real").as_number() == 2.5e-3);
    CHECK(root.at("text").as_string() == "a\n\xC3\xA9\xF0\x9F\x98\x80漢");
    CHECK(root.at("list").items()[1].items()[0].as_int() == 2);
    CHECK(root.at("list").items()[2].is_object());
    CHECK(root.at("empty").items().empty());
    CHECK(root.find("absent") == nullptr);
    CHECK(root.members()[0].first == "null");
}

TEST_CASE("json: integers are exact to 64 bits, beyond they are doubles") {
    CHECK(json::parse("9223372036854775807", "").as_int() == std::numeric_limits<std::int64_t>::max());
    CHECK(json::parse("-9223372036854775808", "").as_int() == std::numeric_limits<std::int64_t>::min());
    const auto beyond = json::parse("9223372036854775808", "");
    CHECK_FALSE(beyond.is_integer());
    CHECK(beyond.as_number() == 0x1p63);
    CHECK_FALSE(json::parse("1.0", "").is_integer());
    CHECK(std::signbit(json::parse("-0", "").as_number()));
}

TEST_CASE("json: errors name file, line, column, found and expected") {
    const std::pair<std::string, std::string> cases[] = {
        {"", "f:1:1: found the end of the file, expected a value"},
        {"{\"a\": 1,\n \"a\": 2}", "f:2:7: found the member \"a\" a second time, expected each name once"},
        {"[1,]", "f:1:4: found ']', expected a value"},
        {"[1 2]", "f:1:4: found '2', expected ',' or ']' after an item"},
        {"{\"a\": 1,}", "f:1:9: found '}', expected a member name in quotes"},
        {"{a: 1}", "f:1:2: found 'a', expected a member name in quotes"},
        {"{\"a\" 1}", "f:1:6: found '1', expected ':' after a member name"},
        {"{\"a\": 1 \"b\": 2}", "f:1:9: found '\"', expected ',' or '}' after a member"},
        {"\n1 x", "f:2:3: found 'x', expected the end of the file"},
        {"01", "f:1:2: found '1', expected the end of the file"},
        {"+1", "f:1:1: found '+', expected a value"},
        {"-", "f:1:2: found the end of the file, expected a digit after '-'"},
        {"1.", "f:1:3: found the end of the file, expected a digit after '.'"},
        {"1e+", "f:1:4: found the end of the file, expected a digit in the exponent"},
        {"1e999", "f:1:1: found the number 1e999, expected one that a double can hold"},
        {"NaN", "f:1:1: found 'N', expected a value"},
        {"trux", "f:1:4: found 'x', expected \"true\""},
        {"\"abc", "f:1:5: found the end of the file, expected '\"'"},
        {"\"\\x\"", "f:1:3: found 'x', expected one of \" \\ / b f n r t u after '\\'"},
        {"\"\\u12g4\"", "f:1:6: found 'g', expected four hexadecimal digits after \\u"},
        {"\"\\ud800x\"", "f:1:8: found the first half of a surrogate pair alone, expected a pair"},
        {"\"\\ud800\\u0041\"", "f:1:14: found the first half of a surrogate pair alone, expected a pair"},
        {"\"\\udc00\"", "f:1:8: found the second half of a surrogate pair alone, expected a pair"},
        {"\"a\tb\"", "f:1:3: found the byte 0x09, expected an escape such as \\n for a control character"},
        {"\xEF\xBB\xBF{}", "f:1:1: found a byte order mark, expected plain UTF-8"},
        {std::string("1\0", 2), "f:1:2: found the byte 0x00, expected the end of the file"},
    };
    for (const auto& [text, message] : cases)
        CHECK(message_of([&, &text = text] { (void)json::parse(text, "f"); }) == message);
}

TEST_CASE("json: strings are UTF-8 without overlong forms and surrogates") {
    for (const char* bad : {"\x80", "\xC0\xAF", "\xC1\xBF", "\xC3", "\xE0\x9F\xBF", "\xE2\x82", "\xED\xA0\x80",
                            "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
        CHECK(message_of([&] { (void)json::parse(fathom::text_of('"', bad, '"'), "f"); }).ends_with("expected UTF-8"));
        CHECK(message_of([&] { (void)json::write(bad); }).find("not UTF-8") != std::string::npos);
    }
    for (const char* good :
         {"\x7F", "\xC2\x80", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
        CHECK(json::parse(json::write(good), "f").as_string() == good);
}

TEST_CASE("json: nesting ends at 128 levels, not at the end of the stack") {
    const auto nested = [](std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
    CHECK_NOTHROW((void)json::parse(nested(129), "f"));
    CHECK(message_of([&] { (void)json::parse(std::string(1'000'000, '['), "f"); }) ==
          "f:1:130: found more than 128 levels of nesting, expected fewer");
}

TEST_CASE("json: a value of another kind is refused at its place") {
    const auto root = json::parse("{\"layers\":\n  \"six\", \"deep\": [1.5]}", "config.json");
    CHECK(message_of([&] { (void)root.at("layers").as_int(); }) ==
          "config.json:2:3: found the string \"six\", expected an integer of 64 bits");
    CHECK(message_of([&] { (void)root.at("deep").items()[0].as_int(); }) ==
          "config.json:2:19: found the number 1.5, expected an integer of 64 bits");
    CHECK(message_of([&] { (void)root.at("deep").members(); }) ==
          "config.json:2:18: found an array of 1, expected an object");
    CHECK(message_of([&] { (void)root.at("absent"); }) ==
          "config.json:1:1: found an object without \"absent\", expected that member");
    CHECK(message_of([&] { (void)json::value{true}.as_string(); }) == "json: found true, expected a string");
}

TEST_CASE("json: what is written reads back the same") {
    json::value root;
    root.set("text", "quote \" slash \\ control \x01\x1F\n漢");
    root.set("numbers", json::array{0, -1, std::numeric_limits<std::int64_t>::min(), 0.1, 1e300, -0.0, 4.0, 5e-324});
    root.set("nested", json::object{{"empty", json::array{}}, {"none", nullptr}, {"yes", true}});
    root.set("text2", "first");
    root.set("text2", "second");
    CHECK(json::write(root.at("nested")) == "{\"empty\":[],\"none\":null,\"yes\":true}");
    CHECK(json::write(root.at("nested"), 2) == "{\n  \"empty\": [],\n  \"none\": null,\n  \"yes\": true\n}");
    for (const int indent : {0, 1, 4}) {
        const auto again = json::parse(json::write(root, indent), "again");
        CHECK(json::write(again, indent) == json::write(root, indent));
        CHECK(again.at("text").as_string() == root.at("text").as_string());
        CHECK(again.at("text2").as_string() == "second");
        for (std::size_t i = 0; i < root.at("numbers").size(); ++i) {
            const auto &read = again.at("numbers").items()[i], &written = root.at("numbers").items()[i];
            CHECK(read.is_integer() == written.is_integer());
            CHECK(read.as_number() == written.as_number());
        }
    }
    CHECK(message_of([] { (void)json::write(std::nan("")); }) ==
          "json: found the number nan to write, expected a finite one");
    CHECK(message_of([] { (void)json::value{std::uint64_t{1} << 63}; }) ==
          "json: found the integer 9223372036854775808, expected at most 2^63 - 1");
    CHECK(message_of([] { json::value{1}.push(2); }) == "json: found the integer 1, expected an array");
}

TEST_CASE("json: a file is read by its path") {
    const auto config = json::parse_file(fathom::test::source_file("tests/oracle/v3_plain/config.json"));
    CHECK(config.at("model_type").as_string() == "deepseek_v3");
    const fathom::test::scratch_folder folder;
    CHECK(message_of([&] { (void)json::parse_file(folder / "none.json"); }) ==
          (folder / "none.json: cannot be opened: No such file or directory"));
}
