// How GPUs' ranks find each other without MPI: torchrun's or Slurm's variables, and one TCP port of rank 0.
#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fathom/comm/nccl/library.hpp>
#include <fathom/comm/watchdog.hpp>
#include <fathom/core/seconds_now.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::comm::nccl {

/// Which rank this process is, and where it asks rank 0 for NCCL's id.
struct place {
    integer rank = 0, size = 1;
    integer local_rank = 0;  // on its machine: the number of its GPU
    std::string address = "127.0.0.1";
    integer port = 29501;
};

namespace detail {

inline integer number_of(const char* name, integer otherwise, integer least, integer most) {
    const char* const text = std::getenv(name);
    if (text == nullptr) return otherwise;
    const std::string_view digits{text};
    integer number = 0;
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (problem != std::errc{} || end != digits.data() + digits.size() || number < least || number > most)
        fail("the environment has ", name, '=', digits, ", expected a number from ", least, " to ", most);
    return number;
}

/// The first of Slurm's list of machines: `node7` of node7,node9 and node003 of node[003-005,9].
inline std::string first_machine(std::string_view list) {
    const std::size_t end = list.find_first_of(",[");
    std::string name{list.substr(0, end)};
    if (end == std::string_view::npos || list[end] == ',') return name;
    const std::string_view numbers = list.substr(end + 1);
    return name += numbers.substr(0, numbers.find_first_of("-,]"));
}

/// A socket, closed with its owner.
class socket_owner {
  public:
    explicit socket_owner(int socket) : socket_(socket) {}
    socket_owner(const socket_owner&) = delete;
    socket_owner& operator=(const socket_owner&) = delete;
    ~socket_owner() {
        if (socket_ >= 0) close(socket_);
    }
    [[nodiscard]] int get() const { return socket_; }

  private:
    int socket_;
};

/// Whether the socket is ready before the moment `until`.
inline bool ready(int socket, short events, double until) {
    const double left = until - seconds_now();
    pollfd what{socket, events, 0};
    return left > 0 && poll(&what, 1, static_cast<int>(left * 1000) + 1) > 0;
}
inline bool receive_all(int socket, void* data, std::size_t bytes, double until) {
    for (auto* at = static_cast<char*>(data); bytes > 0;) {
        if (!ready(socket, POLLIN, until)) return false;
        const ssize_t got = recv(socket, at, bytes, 0);
        if (got <= 0) return false;
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}
inline bool send_all(int socket, const void* data, std::size_t bytes) {
    return send(socket, data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);  // far less than a socket holds
}

/// How a rank asks; stray programs that come to the port say something else.
struct question {
    std::uint64_t mark = 0x66617468'6f6d6964;
    std::int64_t rank = 0, size = 0;
};

/// Rank 0: gives the id to all others.
inline void give_id(const place& me, const unique_id& id, const watchdog& limit) {
    const double until = seconds_now() + limit.start;
    const socket_owner listener{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const int yes = 1;
    setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(static_cast<std::uint16_t>(me.port));
    if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 ||
        listen(listener.get(), SOMAXCONN) != 0)
        fail("rank 0: port ", me.port, " cannot be listened on: found ", std::strerror(errno),
             ", expected a free port (MASTER_PORT is the one before it)");
    std::vector<char> came(static_cast<std::size_t>(me.size), 0);
    for (integer left = me.size - 1; left > 0;) {
        if (!ready(listener.get(), POLLIN, until)) {
            std::vector<integer> absent;
            for (integer rank = 1; rank < me.size; ++rank)
                if (came[static_cast<std::size_t>(rank)] == 0) absent.push_back(rank);
            fail("rank 0: ", watchdog::report(watchdog{.limit = limit.start}.overdue("start-up"), absent, {}));
        }
        const socket_owner other{accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
        question asked;
        constexpr double patience = 2;  // with one that connects and is silent
        const double soon = seconds_now() + patience < until ? seconds_now() + patience : until;
        if (other.get() < 0 || !receive_all(other.get(), &asked, sizeof asked, soon) || asked.mark != question{}.mark)
            continue;
        if (asked.size != me.size || asked.rank < 1 || asked.rank >= me.size)
            fail("rank 0: rank ", asked.rank, " of ", asked.size, " came to port ", me.port, ", expected ranks 1 to ",
                 me.size - 1, " of ", me.size);
        char& seen = came[static_cast<std::size_t>(asked.rank)];
        if (seen != 0) fail("rank 0: two processes say that they are rank ", asked.rank, ", expected one");
        if (!send_all(other.get(), &id, sizeof id)) continue;
        seen = 1;
        --left;
    }
}

/// The others: ask until rank 0 is there.
inline unique_id ask_for_id(const place& me, const watchdog& limit) {
    const double until = seconds_now() + limit.start;
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int problem = getaddrinfo(me.address.c_str(), text_of(me.port).c_str(), &hints, &found); problem != 0)
        fail("rank ", me.rank, ": the address of rank 0 is ", me.address, ": found ", gai_strerror(problem),
             ", expected the name or IPv4 address of a machine");
    sockaddr_in to{};
    std::memcpy(&to, found->ai_addr, sizeof to);
    freeaddrinfo(found);
    const question mine{.rank = me.rank, .size = me.size};
    unique_id id{};
    while (seconds_now() < until) {
        const socket_owner other{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
        timeval patience{static_cast<time_t>(limit.start) + 1, 0};  // of connect to a machine that is silent
        setsockopt(other.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (connect(other.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 &&
            send_all(other.get(), &mine, sizeof mine) && receive_all(other.get(), &id, sizeof id, until))
            return id;
        usleep(20'000);
    }
    fail("rank ", me.rank, ": ", watchdog{.limit = limit.start}.overdue("start-up"), ": rank 0 gave no id at ",
         me.address, " port ", me.port);
}

}  // namespace detail

/// As torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) or Slurm (SLURM_PROCID, SLURM_NTASKS,
/// SLURM_LOCALID, the first machine of SLURM_STEP_NODELIST) tells it; one rank where neither does. The port is the one
/// after MASTER_PORT, which torchrun may listen on itself. Errors: a variable that is missing or no such number.
[[nodiscard]] inline place place_from_environment() {
    constexpr integer most_ranks = 1 << 24, first_port = 29500, ports = 1000, last_port = 65534;
    place found;
    const bool torchrun = std::getenv("RANK") != nullptr || std::getenv("WORLD_SIZE") != nullptr;
    const bool slurm = !torchrun && std::getenv("SLURM_PROCID") != nullptr;
    if (!torchrun && !slurm) return found;
    const auto needed = [&](const char* name) {
        if (std::getenv(name) == nullptr)
            fail("the environment has no ", name, ", expected it beside ", torchrun ? "torchrun's" : "Slurm's",
                 " other variables");
        return name;
    };
    found.size = detail::number_of(needed(torchrun ? "WORLD_SIZE" : "SLURM_NTASKS"), 1, 1, most_ranks);
    found.rank = detail::number_of(needed(torchrun ? "RANK" : "SLURM_PROCID"), 0, 0, found.size - 1);
    found.local_rank = detail::number_of(torchrun ? "LOCAL_RANK" : "SLURM_LOCALID", 0, 0, found.size - 1);
    if (const char* const address = std::getenv("MASTER_ADDR"))
        found.address = address;
    else if (slurm)
        found.address = detail::first_machine(std::getenv(needed("SLURM_STEP_NODELIST")));
    const integer job = slurm ? detail::number_of("SLURM_JOB_ID", 0, 0, integer{1} << 40) : 0;
    found.port = detail::number_of("MASTER_PORT", first_port + job % ports, 1, last_port) + 1;
    return found;
}

/// Every rank's id of one NCCL communicator: rank 0's, over TCP. All ranks call it together. Errors: ranks that do not
/// come within the limit's start, by number.
[[nodiscard]] inline unique_id meet(const place& me, const unique_id& of_rank_0, const watchdog& limit = {}) {
    if (me.rank != 0) return detail::ask_for_id(me, limit);
    if (me.size > 1) detail::give_id(me, of_rank_0, limit);
    return of_rank_0;
}

}  // namespace fathom::comm::nccl
