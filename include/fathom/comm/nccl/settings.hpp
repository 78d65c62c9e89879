// What people tune in NCCL, in types: checked on this machine before NCCL starts, instead of read by it in silence.
#pragma once

#include <dirent.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom::comm::nccl {

/// How NCCL moves data; `any` leaves it to NCCL. An algorithm that a machine cannot do is refused by NCCL itself.
enum class algorithm : std::uint8_t { any, ring, tree, collnet_direct, collnet_chain, nvls, nvls_tree, pat };
enum class protocol : std::uint8_t { any, ll, ll128, simple };
enum class debug_level : std::uint8_t { none, version, warn, info, trace };

[[nodiscard]] constexpr const char* name_of(algorithm which) {
    constexpr const char* names[] = {"", "Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"};
    return names[static_cast<int>(which)];
}
[[nodiscard]] constexpr const char* name_of(protocol which) {
    constexpr const char* names[] = {"", "LL", "LL128", "Simple"};
    return names[static_cast<int>(which)];
}

/// How the collectives of one axis go, up to a message size.
struct choice {
    std::string axis{};  // a communicator's name, such as dp; empty: those that no other choice names
    integer up_to = std::numeric_limits<integer>::max();  // bytes, as request::bytes counts them
    algorithm how = algorithm::any;
    protocol with = protocol::any;
};

/// The network devices that this process can see.
struct machine {
    std::vector<std::string> interfaces{}, adapters{};

    [[nodiscard]] static machine here() {
        machine found;
        if (struct if_nameindex* const all = if_nameindex()) {
            for (const struct if_nameindex* one = all; one->if_name != nullptr; ++one)
                found.interfaces.emplace_back(one->if_name);
            if_freenameindex(all);
        }
        if (DIR* const folder = opendir("/sys/class/infiniband")) {
            while (const dirent* const entry = readdir(folder))
                if (entry->d_name[0] != '.') found.adapters.emplace_back(entry->d_name);
            closedir(folder);
            std::sort(found.adapters.begin(), found.adapters.end());
        }
        return found;
    }
};

/// What is not set is left to NCCL and to the variables of the environment.
struct settings {
    std::vector<choice> choices{};
    std::optional<integer> socket_threads{}, sockets_per_thread{};
    std::vector<std::string> interfaces{};  // exact names
    std::optional<bool> infiniband{};       // and RoCE
    std::vector<std::string> adapters{};    // HCAs, with a port if it matters: mlx5_0 or mlx5_0:1
    std::optional<integer> gid_index{}, traffic_class{};
    std::optional<integer> timeout{};  // 4.096 us * 2^timeout
    std::optional<integer> retries{};
    std::string topology_file{};
    std::optional<debug_level> debug{};
};

/// The names and values of NCCL's variables; those of algorithm and protocol are in `variables(choice)`.
using variables_list = std::vector<std::pair<const char*, std::string>>;

namespace detail {

[[nodiscard]] inline std::string listed(std::span<const std::string> words, const char* between) {
    std::string text;
    for (const std::string& word : words) text += text.empty() ? word : between + word;
    return text;
}

inline void check_range(const char* name, const std::optional<integer>& number, integer least, integer most) {
    if (number && (*number < least || *number > most))
        fail("NCCL settings: ", name, " is ", *number, ", expected ", least, " to ", most);
}

inline void check_device(const char* name, std::string_view device, std::span<const std::string> there) {
    if (std::find(there.begin(), there.end(), device) != there.end()) return;
    fail("NCCL settings: ", name, " names ", device,
         ", expected one of this machine's: ", there.empty() ? std::string{"it has none"} : listed(there, " "));
}

inline void check_choices(std::span<const choice> choices) {
    for (std::size_t n = 0; n < choices.size(); ++n) {
        const choice& one = choices[n];
        if (one.up_to <= 0)
            fail("NCCL settings: choices[", n, "] is for messages up to ", one.up_to, " bytes, expected more than 0");
        for (std::size_t other = 0; other < n; ++other)
            if (choices[other].axis == one.axis && choices[other].up_to == one.up_to)
                fail("NCCL settings: choices[", other, "] and choices[", n, "] are both for axis \"", one.axis,
                     "\" up to ", one.up_to, " bytes, expected one");
    }
}

}  // namespace detail

/// Throws what is wrong with the settings on this machine, with what there is.
inline void check(const settings& of, const machine& on = machine::here()) {
    constexpr integer most_threads = 16, most_sockets = 64;
    detail::check_choices(of.choices);
    detail::check_range("socket_threads", of.socket_threads, 1, most_threads);
    detail::check_range("sockets_per_thread", of.sockets_per_thread, 1, most_sockets);
    if (const integer sockets = of.socket_threads.value_or(1) * of.sockets_per_thread.value_or(1);
        sockets > most_sockets)
        fail("NCCL settings: socket_threads times sockets_per_thread is ", sockets, ", expected at most ",
             most_sockets);
    detail::check_range("gid_index", of.gid_index, 0, 255);
    detail::check_range("traffic_class", of.traffic_class, 0, 255);
    detail::check_range("timeout", of.timeout, 1, 31);
    detail::check_range("retries", of.retries, 0, 7);
    for (const std::string& name : of.interfaces) detail::check_device("interfaces", name, on.interfaces);
    if (of.infiniband == false && !of.adapters.empty())
        fail("NCCL settings: adapters names ", of.adapters[0], ", but infiniband is off, expected one or the other");
    for (const std::string& name : of.adapters)
        detail::check_device("adapters", std::string_view{name}.substr(0, name.find(':')), on.adapters);
    if (!of.topology_file.empty() && access(of.topology_file.c_str(), R_OK) != 0)
        fail("NCCL settings: topology_file is ", of.topology_file, ", expected a file that can be read");
}

/// What NCCL is told once for the process.
[[nodiscard]] inline variables_list variables(const settings& of) {
    constexpr const char* levels[] = {"NONE", "VERSION", "WARN", "INFO", "TRACE"};
    variables_list list;
    const auto number = [&](const char* name, const std::optional<integer>& value) {
        if (value) list.emplace_back(name, text_of(*value));
    };
    number("NCCL_SOCKET_NTHREADS", of.socket_threads);
    number("NCCL_NSOCKS_PERTHREAD", of.sockets_per_thread);
    // Without the sign NCCL takes names for beginnings of names.
    if (!of.interfaces.empty()) list.emplace_back("NCCL_SOCKET_IFNAME", "=" + detail::listed(of.interfaces, ","));
    if (of.infiniband) list.emplace_back("NCCL_IB_DISABLE", *of.infiniband ? "0" : "1");
    if (!of.adapters.empty()) list.emplace_back("NCCL_IB_HCA", "=" + detail::listed(of.adapters, ","));
    number("NCCL_IB_GID_INDEX", of.gid_index);
    number("NCCL_IB_TC", of.traffic_class);
    number("NCCL_IB_TIMEOUT", of.timeout);
    number("NCCL_IB_RETRY_CNT", of.retries);
    if (!of.topology_file.empty()) list.emplace_back("NCCL_TOPO_FILE", of.topology_file);
    if (of.debug) list.emplace_back("NCCL_DEBUG", levels[static_cast<int>(*of.debug)]);
    return list;
}
/// What NCCL is told while it makes one communicator.
[[nodiscard]] inline variables_list variables(const choice& of) {
    variables_list list;
    if (of.how != algorithm::any) list.emplace_back("NCCL_ALGO", name_of(of.how));
    if (of.with != protocol::any) list.emplace_back("NCCL_PROTO", name_of(of.with));
    return list;
}

/// The choices of an axis, for small messages first; the last is for all sizes.
[[nodiscard]] inline std::vector<choice> choices_of(const settings& of, std::string_view axis) {
    std::vector<choice> found;
    for (const std::string_view wanted : {axis, std::string_view{}}) {
        for (const choice& one : of.choices)
            if (one.axis == wanted) found.push_back(one);
        if (!found.empty()) break;
    }
    std::sort(found.begin(), found.end(), [](const choice& a, const choice& b) { return a.up_to < b.up_to; });
    if (found.empty() || found.back().up_to != choice{}.up_to) found.push_back(choice{std::string{axis}});
    return found;
}

/// One line for a rank's output: what NCCL is told, in its own words.
[[nodiscard]] inline std::string described(const settings& of, integer rank) {
    std::string text = text_of("rank ", rank, ": NCCL");
    for (const auto& [name, value] : variables(of)) text += text_of(' ', name, '=', value);
    for (const choice& one : of.choices) {
        text += text_of("; ", one.axis.empty() ? std::string{"all axes"} : one.axis);
        if (one.up_to != choice{}.up_to) text += text_of(" up to ", one.up_to, " bytes");
        for (const auto& [name, value] : variables(one)) text += text_of(' ', name, '=', value);
    }
    return text;
}

/// Checks the settings and writes them to this process's environment. Once, before NCCL starts and before there are
/// threads that read the environment. A variable that is there with another value is an error: nobody would know which
/// of the two holds.
inline void hand_over(const settings& of, const machine& on = machine::here()) {
    check(of, on);
    const variables_list list = variables(of);
    for (const auto& [name, value] : list)
        if (const char* const there = std::getenv(name); there != nullptr && there != value)
            fail("NCCL settings: the environment has ", name, '=', there, ", expected ", value, " or no such variable");
    for (const auto& [name, value] : list) setenv(name, value.c_str(), 1);
}

/// The variables of a choice, for as long as NCCL makes the communicator that they are for.
class with_choice {
  public:
    explicit with_choice(const choice& of) {
        for (const auto& [name, value] : variables(of)) {
            const char* const there = std::getenv(name);
            before_.emplace_back(name, there != nullptr ? std::optional<std::string>{there} : std::nullopt);
            setenv(name, value.c_str(), 1);
        }
    }
    with_choice(const with_choice&) = delete;
    with_choice& operator=(const with_choice&) = delete;
    ~with_choice() {
        for (const auto& [name, value] : before_) {
            if (value)
                setenv(name, value->c_str(), 1);
            else
                unsetenv(name);
        }
    }

  private:
    std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

}  // namespace fathom::comm::nccl
