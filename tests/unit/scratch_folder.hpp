// What tests of files share: a folder that is gone afterwards, the checkout's own files, and the message of an error.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "fathom/core/error.hpp"

namespace fathom::test {

class scratch_folder {
  public:
    scratch_folder() {
        // Saves synchronise often: in memory where there is such a place.
        const bool memory = ::access("/dev/shm", W_OK) == 0;
        std::string name =
            (memory ? std::string{"/dev/shm"} : std::filesystem::temp_directory_path().string()) + "/fathom-XXXXXX";
        if (!::mkdtemp(name.data())) fail(name, ": cannot be made");
        path_ = name;
    }
    scratch_folder(const scratch_folder&) = delete;
    scratch_folder& operator=(const scratch_folder&) = delete;
    ~scratch_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::string operator/(std::string_view name) const { return text_of(path_, '/', name); }
    /// Files and folders directly in it.
    [[nodiscard]] long entries() const {
        return std::distance(std::filesystem::directory_iterator{path_}, std::filesystem::directory_iterator{});
    }

  private:
    std::string path_;
};

/// A file of the checkout, by its path from the root.
[[nodiscard]] inline std::string source_file(std::string_view path) {
    const char* root = std::getenv("FATHOM_SOURCE_ROOT");
    return text_of(root ? root : ".", '/', path);
}

[[nodiscard]] inline std::string contents(const std::string& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

inline void put(const std::string& path, std::string_view text) {
    std::ofstream{path, std::ios::binary | std::ios::trunc}.write(text.data(),
                                                                  static_cast<std::streamsize>(text.size()));
}

/// The message of the `fathom::error` that `work` throws, or "no error".
template <class Work> [[nodiscard]] std::string message_of(const Work& work) {
    try {
        work();
    } catch (const error& reason) {
        return reason.what();
    }
    return "no error";
}

}  // namespace fathom::test
