// Encodes the files of a list once for every line on its input, on one thread, and prints the time as JSON: the side of
// bench/tokenizer.py that is ours.
#include "fathom/data/tokenizer.hpp"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "fathom/core/file.hpp"

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr,
                     "usage: %s TOKENIZER_JSON LIST, where LIST names a text file a line; see bench/tokenizer.py\n",
                     argv[0]);
        return 2;
    }
    try {
        const auto words = fathom::tokenizer::open(argv[1]);
        std::vector<std::string> texts;
        std::ifstream list{argv[2]};
        for (std::string path; std::getline(list, path);) texts.emplace_back(fathom::mapped_file{path}.text());
        for (std::string line; std::getline(std::cin, line);) {
            std::vector<std::vector<std::int32_t>> ids;
            ids.reserve(texts.size());
            const auto start = std::chrono::steady_clock::now();
            for (const std::string& text : texts) ids.push_back(words.encode(text));
            const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
            std::uint64_t count = 0, hash = 0;
            for (const auto& document : ids) {
                count += document.size();
                for (const std::int32_t id : document) hash = (hash * 31 + static_cast<std::uint64_t>(id)) % 0xFFFFFFFB;
            }
            std::printf("{\"seconds\": %.6f, \"ids\": %llu, \"hash\": %llu}\n", taken.count(),
                        static_cast<unsigned long long>(count), static_cast<unsigned long long>(hash));
            std::fflush(stdout);
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
