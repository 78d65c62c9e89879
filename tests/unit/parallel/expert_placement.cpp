// Placement of replicated experts: EPLB's published example by both policies, and what is asked of any placement.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fathom/parallel/expert_placement.hpp>
#include <limits>
#include <string>

namespace {

using namespace fathom;
using list = std::vector<integer>;

const std::vector<double> first{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
const std::vector<double> second{20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27};
constexpr expert_places example{.replicas = 16, .groups = 4, .nodes = 2, .gpus = 8};

TEST_CASE("the published example is reproduced") {
    const auto one = place_experts(first, example), two = place_experts(second, example);
    CHECK(one.hierarchical);
    CHECK(one.expert_of == list{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1});
    CHECK(two.expert_of == list{7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1});
    CHECK(one.copies == list{1, 2, 1, 1, 2, 2, 1, 1, 1, 1, 2, 1});
    CHECK(two.copies == list{1, 2, 1, 1, 1, 2, 2, 1, 2, 1, 1, 1});
    CHECK(one.imbalance() == doctest::Approx(1.208).epsilon(0.0005));
    CHECK(two.imbalance() == doctest::Approx(1.242).epsilon(0.0005));
}

TEST_CASE("groups that do not divide over nodes are placed on all GPUs alike") {
    expert_places global = example;
    global.groups = 3;
    const auto one = place_experts(first, global), two = place_experts(second, global);
    CHECK(!one.hierarchical);
    CHECK(one.expert_of == list{10, 6, 10, 7, 0, 2, 11, 4, 5, 9, 5, 4, 8, 3, 1, 1});
    CHECK(two.expert_of == list{1, 10, 2, 4, 5, 11, 5, 0, 6, 7, 6, 3, 8, 8, 9, 7});
    CHECK(one.imbalance() == doctest::Approx(1.073).epsilon(0.0005));
    CHECK(two.imbalance() == doctest::Approx(1.190).epsilon(0.0005));
}

TEST_CASE("every copy has one place, and a hierarchical placement keeps groups on their node") {
    unsigned seed = 1;
    for (const expert_places places :
         {expert_places{256 + 32, 8, 4, 32}, {64, 1, 1, 8}, {288, 8, 3, 36}, {96, 8, 8, 8}}) {
        const integer experts = places.replicas == 96 ? 96 : places.replicas == 64 ? 64 : 256;
        std::vector<double> loads(static_cast<std::size_t>(experts));
        for (double& load : loads) load = (seed = seed * 1'664'525u + 1'013'904'223u) >> 20;
        const auto placed = place_experts(loads, places);
        list copies(loads.size());
        for (std::size_t i = 0; i < placed.expert_of.size(); ++i) {
            const auto e = static_cast<std::size_t>(placed.expert_of[i]);
            REQUIRE(e < loads.size());
            ++copies[e];
            CHECK(placed.copy_of[i] < placed.copies[e]);
            for (std::size_t j = 0; j < i; ++j)
                if (placed.expert_of[i] == placed.expert_of[j]) CHECK(placed.copy_of[i] != placed.copy_of[j]);
        }
        CHECK(copies == placed.copies);
        CHECK(*std::min_element(copies.begin(), copies.end()) >= 1);
        CHECK(placed.imbalance() >= 1);
        CHECK(placed.imbalance() < 1.8);
        if (!placed.hierarchical) continue;
        const integer here = places.replicas / places.nodes;
        std::vector<integer> node_of(static_cast<std::size_t>(places.groups), -1);
        for (integer i = 0; i < places.replicas; ++i) {
            integer& node = node_of[static_cast<std::size_t>(placed.expert_of[static_cast<std::size_t>(i)] /
                                                             (experts / places.groups))];
            if (node < 0) node = i / here;
            CHECK(node == i / here);
        }
    }
}

TEST_CASE("without load every expert still has a place") {
    const auto placed = place_experts(std::vector<double>(12), example);
    CHECK(placed.imbalance() == 1);
    CHECK(*std::min_element(placed.copies.begin(), placed.copies.end()) == 1);
}

TEST_CASE("impossible placements are refused with their numbers") {
    const auto message = [](const std::vector<double>& loads, expert_places places) {
        try {
            place_experts(loads, places);
        } catch (const error& wrong) {
            return std::string{wrong.what()};
        }
        return std::string{};
    };
    CHECK(message(first, {16, 5, 2, 8}) ==
          "expert placement: found 12 experts in 5 groups, expected groups of one size");
    CHECK(message(first, {16, 4, 3, 8}) == "expert placement: found 8 GPUs on 3 nodes, expected as many on each");
    CHECK(message(first, {8, 4, 2, 8}) ==
          "expert placement: found 8 places for 12 experts on 8 GPUs, expected at least one an expert and as many on "
          "each GPU");
    CHECK(message(first, {17, 4, 2, 8}).find("17 places") != std::string::npos);
    CHECK(message({}, {16, 4, 2, 8}).find("0 experts") != std::string::npos);
    CHECK(message(first, {16, 0, 2, 8}).find("0 groups") != std::string::npos);
    CHECK(message(first, {16, 4, 2, 0}).find("0 GPUs") != std::string::npos);
    for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        auto loads = first;
        loads[3] = bad;
        CHECK(message(loads, example).find("of expert 3, expected a number of at least 0") != std::string::npos);
    }
}

}  // namespace
