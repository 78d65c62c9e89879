// Files are read by mapping and written whole or not at all, so that no crash and no full disk leaves half a file
// behind.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fathom/core/error.hpp"

namespace fathom {

/// A whole file, mapped read-only. Its contents are valid while the object lives and nobody shortens the file.
/// Errors: a missing file, a directory or another special file, no permission; each names the path and the reason.
class mapped_file {
  public:
    explicit mapped_file(std::string path) : path_{std::move(path)} {
        const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (file < 0) fail(path_, ": cannot be opened: ", std::strerror(errno));
        struct stat facts {};
        const bool known = ::fstat(file, &facts) == 0;
        if (known && S_ISREG(facts.st_mode) && facts.st_size > 0) {
            size_ = static_cast<std::size_t>(facts.st_size);
            start_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
        }
        const int reason = errno;
        ::close(file);
        if (known && S_ISDIR(facts.st_mode)) fail(path_, ": found a directory, expected a file");
        if (known && !S_ISREG(facts.st_mode)) fail(path_, ": found a device or pipe, expected a file");
        if (!known || start_ == MAP_FAILED) fail(path_, ": cannot be read: ", std::strerror(reason));
    }

    mapped_file(mapped_file&& other) noexcept
        : path_{std::move(other.path_)},
          start_{std::exchange(other.start_, nullptr)},
          size_{std::exchange(other.size_, 0)} {}
    mapped_file& operator=(mapped_file&& other) noexcept {
        std::swap(path_, other.path_);
        std::swap(start_, other.start_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~mapped_file() {
        if (size_ > 0 && start_ != MAP_FAILED) ::munmap(start_, size_);
    }

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::span<const std::byte> data() const { return {static_cast<const std::byte*>(start_), size_}; }
    [[nodiscard]] std::string_view text() const { return {static_cast<const char*>(start_), size_}; }

  private:
    std::string path_;
    void* start_ = nullptr;
    std::size_t size_ = 0;
};

/// Called before each change to the file system with its name ("open", "write", "sync", "rename", ...) and the path:
/// the place where a test kills the process or lets a step fail by throwing.
using file_hook = void (*)(const char* step, const std::string& path);

namespace detail {

inline void before(file_hook hook, const char* step, const std::string& path) {
    if (hook) hook(step, path);
}

/// The folder that holds `path`.
[[nodiscard]] inline std::string folder_of(const std::string& path) {
    const auto slash = path.find_last_of('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

/// Makes renames inside `folder` last through a power cut. File systems that cannot sync a folder say EINVAL.
inline void sync_folder(const std::string& folder, file_hook hook) {
    before(hook, "sync", folder);
    const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool done = file >= 0 && (::fsync(file) == 0 || errno == EINVAL);
    const int reason = errno;
    if (file >= 0) ::close(file);
    if (!done) fail(folder, ": cannot be synchronised: ", std::strerror(reason));
}

/// A new file under a name of its own beside `target`; gone again unless it was moved onto `target`.
class file_in_progress {
  public:
    file_in_progress(const std::string& target, std::size_t bytes, file_hook hook)
        : target_{target}, bytes_{bytes}, hook_{hook} {
        before(hook_, "open", target_);
        for (int attempt = 0; file_ < 0; ++attempt) {
            name_ = text_of(target_, ".partial-", ::getpid(), '-', attempt);
            file_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
            if (file_ < 0 && errno != EEXIST) give_up();
        }
    }
    file_in_progress(const file_in_progress&) = delete;
    file_in_progress& operator=(const file_in_progress&) = delete;
    ~file_in_progress() {
        if (file_ >= 0) ::close(file_);
        if (!name_.empty()) ::unlink(name_.c_str());
    }

    void write(std::span<const std::byte> part) {
        while (!part.empty()) {
            before(hook_, "write", target_);
            constexpr std::size_t most = std::size_t{1} << 30;
            const ssize_t count = ::write(file_, part.data(), part.size() < most ? part.size() : most);
            if (count < 0 && errno == EINTR) continue;
            if (count < 0) give_up();
            part = part.subspan(static_cast<std::size_t>(count));
            written_ += static_cast<std::size_t>(count);
        }
    }

    void move_onto_target() {
        before(hook_, "sync", target_);
        if (::fsync(file_) != 0) give_up();
        // Network file systems report a full disk only here.
        if (::close(std::exchange(file_, -1)) != 0) give_up();
        before(hook_, "rename", target_);
        if (::rename(name_.c_str(), target_.c_str()) != 0) give_up();
        name_.clear();
        sync_folder(folder_of(target_), hook_);
    }

  private:
    [[noreturn]] void give_up() const {
        const int reason = errno;
        fail(target_, ": cannot be written: ", std::strerror(reason), " after ", written_, " of ", bytes_,
             " bytes; what was there before is untouched");
    }

    std::string target_, name_;
    std::size_t bytes_, written_ = 0;
    file_hook hook_;
    int file_ = -1;
};

}  // namespace detail

/// Writes the parts, one after the other, as the file `path`: a reader sees what was there before or all of it, also
/// after a crash, a kill or a full disk. Errors: names the path, the reason and the bytes written and wanted.
inline void write_atomically(const std::string& path, std::span<const std::span<const std::byte>> parts,
                             file_hook hook = nullptr) {
    std::size_t bytes = 0;
    for (const auto part : parts) bytes += part.size();
    detail::file_in_progress file{path, bytes, hook};
    for (const auto part : parts) file.write(part);
    file.move_onto_target();
}

inline void write_atomically(const std::string& path, std::initializer_list<std::span<const std::byte>> parts,
                             file_hook hook = nullptr) {
    write_atomically(path, std::span{parts.begin(), parts.size()}, hook);
}

/// The same with one text.
inline void write_atomically(const std::string& path, std::string_view text, file_hook hook = nullptr) {
    write_atomically(path, {std::as_bytes(std::span{text})}, hook);
}

}  // namespace fathom
