// NCCL's settings become its variables, and what cannot be on this machine is refused with what can.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fathom/comm/nccl/settings.hpp>
#include <string>

namespace fathom {
namespace {

using namespace comm::nccl;
const machine two_cards{{"lo", "eth0", "eth1"}, {"mlx5_0", "mlx5_1"}};

std::string refusal(const settings& of) {
    try {
        check(of, two_cards);
    } catch (const error& problem) {
        return problem.what();
    }
    return "none";
}

std::string value_of(const variables_list& list, const std::string& name) {
    for (const auto& [there, value] : list)
        if (there == name) return value;
    return "unset";
}

}  // namespace

TEST_CASE("nccl settings: what is set becomes variables, what is not stays NCCL's") {
    const settings tuned{.socket_threads = 4,
                         .sockets_per_thread = 8,
                         .interfaces = {"eth0", "eth1"},
                         .infiniband = true,
                         .adapters = {"mlx5_0:1"},
                         .gid_index = 3,
                         .traffic_class = 106,
                         .timeout = 22,
                         .retries = 7,
                         .topology_file = "/proc/self/status",
                         .debug = debug_level::info};
    CHECK(refusal(tuned) == "none");
    const variables_list list = variables(tuned);
    CHECK(value_of(list, "NCCL_SOCKET_NTHREADS") == "4");
    CHECK(value_of(list, "NCCL_NSOCKS_PERTHREAD") == "8");
    CHECK(value_of(list, "NCCL_SOCKET_IFNAME") == "=eth0,eth1");
    CHECK(value_of(list, "NCCL_IB_DISABLE") == "0");
    CHECK(value_of(list, "NCCL_IB_HCA") == "=mlx5_0:1");
    CHECK(value_of(list, "NCCL_IB_GID_INDEX") == "3");
    CHECK(value_of(list, "NCCL_IB_TC") == "106");
    CHECK(value_of(list, "NCCL_IB_TIMEOUT") == "22");
    CHECK(value_of(list, "NCCL_IB_RETRY_CNT") == "7");
    CHECK(value_of(list, "NCCL_TOPO_FILE") == "/proc/self/status");
    CHECK(value_of(list, "NCCL_DEBUG") == "INFO");
    CHECK(variables(settings{}).empty());
    CHECK(refusal(settings{}) == "none");
}

TEST_CASE("nccl settings: devices that are not there are refused with those that are") {
    CHECK(refusal({.interfaces = {"eth0", "ib7"}}) ==
          "NCCL settings: interfaces names ib7, expected one of this machine's: lo eth0 eth1");
    CHECK(refusal({.adapters = {"mlx5_9:1"}}) ==
          "NCCL settings: adapters names mlx5_9, expected one of this machine's: mlx5_0 mlx5_1");
    CHECK(refusal({.infiniband = false, .adapters = {"mlx5_0"}}) ==
          "NCCL settings: adapters names mlx5_0, but infiniband is off, expected one or the other");
    CHECK(refusal({.topology_file = "/nowhere/topology.xml"}) ==
          "NCCL settings: topology_file is /nowhere/topology.xml, expected a file that can be read");
    CHECK_THROWS_WITH(check({.adapters = {"mlx5_0"}}, machine{}),
                      "NCCL settings: adapters names mlx5_0, expected one of this machine's: it has none");
    const machine here = machine::here();
    CHECK_NOTHROW(check({.interfaces = {here.interfaces.at(0)}}));
    CHECK_THROWS_AS(check({.interfaces = {"no_such_card"}}), error);
}

TEST_CASE("nccl settings: numbers out of range") {
    CHECK(refusal({.socket_threads = 17}) == "NCCL settings: socket_threads is 17, expected 1 to 16");
    CHECK(refusal({.sockets_per_thread = 0}) == "NCCL settings: sockets_per_thread is 0, expected 1 to 64");
    CHECK(refusal({.socket_threads = 16, .sockets_per_thread = 8}) ==
          "NCCL settings: socket_threads times sockets_per_thread is 128, expected at most 64");
    CHECK(refusal({.gid_index = -1}) == "NCCL settings: gid_index is -1, expected 0 to 255");
    CHECK(refusal({.traffic_class = 256}) == "NCCL settings: traffic_class is 256, expected 0 to 255");
    CHECK(refusal({.timeout = 32}) == "NCCL settings: timeout is 32, expected 1 to 31");
    CHECK(refusal({.retries = 8}) == "NCCL settings: retries is 8, expected 0 to 7");
    CHECK(refusal({.choices = {{.axis = "dp", .up_to = 0}}}) ==
          "NCCL settings: choices[0] is for messages up to 0 bytes, expected more than 0");
    CHECK(refusal({.choices = {{.axis = "dp"}, {.axis = "tp"}, {.axis = "dp"}}}) ==
          "NCCL settings: choices[0] and choices[2] are both for axis \"dp\" up to 9223372036854775807 bytes, "
          "expected one");
}

TEST_CASE("nccl settings: algorithm and protocol by axis and message size") {
    const settings tuned{.choices = {{"dp", 1 << 20, algorithm::tree, protocol::ll128},
                                     {"dp", 1 << 10, algorithm::tree, protocol::ll},
                                     {.how = algorithm::ring}},
                         .socket_threads = 2};
    const std::vector<choice> dp = choices_of(tuned, "dp");
    REQUIRE(dp.size() == 3);  // the small first, and what no choice names at the end
    CHECK(dp[0].with == protocol::ll);
    CHECK(dp[1].with == protocol::ll128);
    CHECK(dp[2].how == algorithm::any);
    const std::vector<choice> tp = choices_of(tuned, "tp");
    REQUIRE(tp.size() == 1);
    CHECK(tp[0].how == algorithm::ring);
    CHECK(choices_of(settings{}, "tp").size() == 1);
    CHECK(described(tuned, 3) ==
          "rank 3: NCCL NCCL_SOCKET_NTHREADS=2; dp up to 1048576 bytes NCCL_ALGO=Tree NCCL_PROTO=LL128; "
          "dp up to 1024 bytes NCCL_ALGO=Tree NCCL_PROTO=LL; all axes NCCL_ALGO=Ring");
}

TEST_CASE("nccl settings: handed over to the environment, unless it says something else") {
    unsetenv("NCCL_ALGO");
    setenv("NCCL_PROTO", "Simple", 1);
    {
        const with_choice made{{.how = algorithm::tree, .with = protocol::ll}};
        CHECK(std::string{std::getenv("NCCL_ALGO")} == "Tree");
        CHECK(std::string{std::getenv("NCCL_PROTO")} == "LL");
    }
    CHECK(std::getenv("NCCL_ALGO") == nullptr);
    CHECK(std::string{std::getenv("NCCL_PROTO")} == "Simple");
    unsetenv("NCCL_PROTO");

    setenv("NCCL_SOCKET_NTHREADS", "2", 1);
    unsetenv("NCCL_IB_TC");
    CHECK_THROWS_WITH(hand_over({.socket_threads = 4, .traffic_class = 106}, two_cards),
                      "NCCL settings: the environment has NCCL_SOCKET_NTHREADS=2, expected 4 or no such variable");
    CHECK(std::getenv("NCCL_IB_TC") == nullptr);
    hand_over({.socket_threads = 2, .traffic_class = 106}, two_cards);
    CHECK(std::string{std::getenv("NCCL_IB_TC")} == "106");
    unsetenv("NCCL_SOCKET_NTHREADS");
    unsetenv("NCCL_IB_TC");
}

}  // namespace fathom
