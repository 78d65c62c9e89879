// Starts a program's ranks and ends them well: the one place that touches signals and prints errors.
#pragma once

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fathom/comm/threads/run.hpp>
#include <fathom/comm/world.hpp>
#include <string_view>
#include <thread>
#include <type_traits>

namespace fathom {

namespace detail {

inline std::atomic<bool> stop_flag{false};

/// Waits for Ctrl-C, SIGTERM and SIGUSR1 (which mpirun and Slurm hand on at once) on a thread of its own while it
/// lives. The first one asks; a second one, should the program not listen, ends it. No handler: oneDNN's kernels use
/// the heap as their stack, and a signal that came upon a thread in one of them would be written into the heap. So all
/// threads that begin here have these signals blocked.
class signal_watch {
  public:
    signal_watch() {
        sigset_t these;
        sigemptyset(&these);
        for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&these, signal);
        pthread_sigmask(SIG_BLOCK, &these, &before_);
        thread_ = std::thread{[this, these] {
            for (int signal = 0; sigwait(&these, &signal) == 0 && !over_.load();)
                if (stop_flag.exchange(true)) {
                    std::signal(signal, SIG_DFL);
                    pthread_sigmask(SIG_UNBLOCK, &these, nullptr);
                    std::raise(signal);
                }
        }};
    }
    signal_watch(const signal_watch&) = delete;
    signal_watch& operator=(const signal_watch&) = delete;
    ~signal_watch() {
        over_.store(true);
        pthread_kill(thread_.native_handle(), SIGTERM);
        thread_.join();
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

  private:
    sigset_t before_{};
    std::atomic<bool> over_{false};
    std::thread thread_;
};

/// What a rank runs, without its type.
struct rank_body {
    void* of;
    void (*call)(void*, const comm::link&, integer neighbours);
};
/// How ranks that are processes are run; <fathom/mpi.hpp> sets it, so that no program needs MPI that does not ask for
/// it.
inline void (*run_over_mpi)(const rank_body&, const comm::watchdog&) = nullptr;

/// What started this process beside others, as the launchers tell it.
struct launcher {
    enum class kind { none, mpi, torchrun } of = kind::none;
    const char* ranks = nullptr;
};
inline launcher launcher_of_process() {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
        if (const char* ranks = std::getenv(name)) return {launcher::kind::mpi, ranks};
    if (std::getenv("PMIX_RANK") != nullptr) return {launcher::kind::mpi, std::getenv("SLURM_NTASKS")};
    if (std::getenv("TORCHELASTIC_RUN_ID") != nullptr ||
        (std::getenv("LOCAL_RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr))
        return {launcher::kind::torchrun, std::getenv("WORLD_SIZE")};
    return {};
}

/// Takes `--threads N` out of the arguments; 0 if it is not there. Errors: no number above 0 after it.
inline integer take_threads(int& argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        if (std::string_view{argv[i]} != "--threads") continue;
        const std::string_view text = i + 1 < argc ? argv[i + 1] : "";
        integer ranks = 0;
        const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), ranks);
        if (problem != std::errc{} || end != text.data() + text.size() || ranks < 1)
            fail("--threads: found \"", text, "\", expected a number of ranks, 1 or more");
        for (int j = i + 2; j <= argc; ++j) argv[j - 2] = argv[j];  // argv[argc] is null
        argc -= 2;
        return ranks;
    }
    return 0;
}

/// Runs `body` once a rank.
inline void run_ranks(integer threads, const rank_body& body, const comm::watchdog& limit) {
    const launcher by = launcher_of_process();
    if (by.of == launcher::kind::torchrun)
        fail("launch: found torchrun's variables, expected MPI's: on processors ranks meet over MPI; start ",
             "`mpirun -n ", by.ranks != nullptr ? by.ranks : "N", " PROGRAM`, or PROGRAM --threads N");
    if (by.of == launcher::kind::mpi) {
        const bool alone = by.ranks != nullptr && std::string_view{by.ranks} == "1";
        if (run_over_mpi == nullptr && !alone)
            fail("launch: found an MPI launcher, expected a program that includes <fathom/mpi.hpp> and is built with ",
                 "MPI's compiler flags; or start it alone, with --threads N");
        if (threads > 0) fail("launch: found --threads under an MPI launcher, expected one of the two");
        if (run_over_mpi != nullptr) return run_over_mpi(body, limit);
    }
    const integer ranks = threads > 0 ? threads : 1;
    if (ranks == 1) return body.call(body.of, comm::link{}, 1);
    comm::threads::run(
        ranks, [&](auto& mine) { body.call(body.of, comm::link{mine}, ranks); }, limit);
}

}  // namespace detail

/// Runs body(world) once a rank of Mesh, which is a mesh or any_of<recipe...>: as the processes of an MPI launcher
/// (with <fathom/mpi.hpp>), as so many threads, or alone (0). Gives back the process's exit status: the largest that a
/// body in it gave (void is 0), or 1 after an exception, such as of a number of ranks that is not for Mesh; its text
/// goes to standard error. `limit`: of waits for other ranks, and of their coming. Ctrl-C, SIGTERM and SIGUSR1 set
/// world.stop_requested().
template <class Mesh, class Body> int launch(integer threads, Body&& body, const comm::watchdog& limit = {}) {
    const detail::signal_watch signals;
    struct ranks_body {
        std::remove_reference_t<Body>* body;
        std::atomic<int> status{0};
    } all{&body, {}};
    const auto call = [](void* of, const comm::link& ranks, integer neighbours) {
        auto& here = *static_cast<ranks_body*>(of);
        world seen{&detail::stop_flag, ranks, neighbours};
        if constexpr (requires { Mesh::require_ranks(seen); })
            Mesh::require_ranks(seen);
        else
            seen.require_ranks<Mesh>();
        if constexpr (std::is_void_v<decltype((*here.body)(seen))>) {
            (*here.body)(seen);
        } else {
            const int status = static_cast<int>((*here.body)(seen));
            for (int most = here.status.load(); status > most && !here.status.compare_exchange_weak(most, status);) {
            }
        }
    };
    try {
        detail::run_ranks(threads, {&all, call}, limit);
        return all.status;
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 1;
    }
}

/// The same with as many threads as `--threads N` says, which is taken out of the arguments.
template <class Mesh, class Body> int launch(int& argc, char** argv, Body&& body, const comm::watchdog& limit = {}) {
    integer threads = 0;
    try {
        threads = detail::take_threads(argc, argv);
    } catch (const error& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 1;
    }
    return launch<Mesh>(threads, body, limit);
}

}  // namespace fathom
