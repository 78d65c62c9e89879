// Files that the tests of this room read and write.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace fathom::tests {

inline std::string in_source(std::string_view path) {
    const char* root = std::getenv("FATHOM_SOURCE_ROOT");
    return std::string{root ? root : "."} + "/" + std::string{path};
}

/// A folder of its own, gone with the object.
struct scratch_folder {
    std::filesystem::path path;

    scratch_folder() {
        std::string name = (std::filesystem::temp_directory_path() / "fathom-XXXXXX").string();
        if (!::mkdtemp(name.data())) throw std::filesystem::filesystem_error{"mkdtemp", std::error_code{}};
        path = name;
    }
    scratch_folder(const scratch_folder&) = delete;
    scratch_folder& operator=(const scratch_folder&) = delete;
    ~scratch_folder() { std::filesystem::remove_all(path); }

    /// Writes a file here and gives its path.
    std::string file(std::string_view name, std::string_view text) const {
        const auto at = path / name;
        std::ofstream{at, std::ios::binary} << text;
        return at.string();
    }
    std::string at(std::string_view name) const { return (path / name).string(); }
};

/// What the callable's fathom::error says, or "no error".
template <class Call> std::string error_of(const Call& call) {
    try {
        call();
    } catch (const fathom::error& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace fathom::tests
