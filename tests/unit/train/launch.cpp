// The start of a program's ranks: signals, arguments and errors.
#include <fathom/train/launch.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <fathom/device/host/workers.hpp>
#include <string>

namespace fathom {
namespace {

struct any_ranks : mesh<dp<any>> {};

/// Arguments as main has them.
struct arguments {
    std::vector<std::string> words;
    std::vector<char*> pointers;
    int count;
    explicit arguments(std::vector<std::string> all) : words(std::move(all)), count(static_cast<int>(words.size())) {
        for (std::string& word : words) pointers.push_back(word.data());
        pointers.push_back(nullptr);
    }
};
template <class Body> int run(arguments& given, Body&& body) {
    return launch<any_ranks>(given.count, given.pointers.data(), body);
}
bool takes(int signal) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    return sigismember(&blocked, signal) == 0;
}

}  // namespace

TEST_CASE("launch: no thread that may compute takes a signal, and Ctrl-C is asked for") {
    arguments given{{"program"}};
    int signal = SIGINT;
    SUBCASE("Ctrl-C") {}
    SUBCASE("what mpirun and Slurm hand on") { signal = SIGUSR1; }
    CHECK(takes(SIGINT));
    std::atomic<int> taken = 0;
    CHECK(run(given, [&](world& all) {
              taken += takes(SIGINT) + takes(SIGTERM) + takes(SIGUSR1);
              host::workers pool{3};
              std::atomic<int> met = 0;
              pool.run(3, [&](integer, int worker) {
                  met += 1;
                  while (met < 3) {
                  }  // so that all three work
                  taken += takes(SIGINT) + takes(SIGTERM) + (worker > 0 && takes(SIGPROF));
              });
              CHECK(!all.stop_requested());
              ::kill(::getpid(), signal);
              while (!all.stop_requested()) {
              }
              return 3;
          }) == 3);
    CHECK(taken == 0);
    CHECK(takes(SIGINT));
    CHECK(takes(SIGUSR1));
    detail::stop_flag = false;
}

TEST_CASE("launch: --threads is taken out of the arguments, and the worst status is the program's") {
    arguments given{{"program", "first", "--threads", "3", "last"}};
    std::atomic<integer> ranks = 0;
    CHECK(run(given, [&](world& all) {
              ranks += all.size();
              CHECK(all.neighbours() == 3);
              return all.rank() == 1 ? 4 : 0;
          }) == 4);
    CHECK(ranks == 9);
    CHECK(given.count == 3);
    CHECK(std::string{given.pointers[1]} == "first");
    CHECK(std::string{given.pointers[2]} == "last");
    CHECK(given.pointers[3] == nullptr);
}

TEST_CASE("launch: a number of threads that the program read itself") {
    std::atomic<integer> ranks = 0;
    CHECK(launch<any_ranks>(2, [&](world& all) { ranks += all.size(); }) == 0);
    CHECK(ranks == 4);
}

TEST_CASE("launch: another number of ranks than the mesh has") {
    arguments given{{"program", "--threads", "3"}};
    bool ran = false;
    CHECK(launch<mesh<dp<2>>>(given.count, given.pointers.data(), [&](world&) { ran = true; }) == 1);
    CHECK(!ran);
}

}  // namespace fathom
