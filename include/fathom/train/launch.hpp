// Starts a program's ranks and ends them well: the one place that touches signals and prints errors.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fathom/comm/world.hpp>
#include <type_traits>

namespace fathom {

namespace detail {
inline std::atomic<bool> stop_flag{false};
/// The first Ctrl-C asks; a second one, should the program not listen, ends it.
inline void ask_to_stop(int signal) {
    stop_flag.store(true, std::memory_order_relaxed);
    std::signal(signal, SIG_DFL);
}
}  // namespace detail

/// Runs body(world) once a rank of Mesh and gives back the program's exit status: body's own (void is 0), or 1 after an
/// exception, whose text goes to standard error. Ctrl-C and SIGTERM set world.stop_requested().
template <class Mesh, class Body> int launch(int, char**, Body&& body) {
    std::signal(SIGINT, detail::ask_to_stop);
    std::signal(SIGTERM, detail::ask_to_stop);
    try {
        world all{&detail::stop_flag};
        if constexpr (std::is_void_v<decltype(body(all))>) {
            body(all);
            return 0;
        } else {
            return static_cast<int>(body(all));
        }
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 1;
    }
}

}  // namespace fathom
