#include "fathom/observe/loss_curve.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>

using namespace fathom::observe;

namespace {

std::size_t count_of(const std::string& text, const std::string& what) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; at += what.size()) ++count;
    return count;
}

}  // namespace

TEST_CASE("loss curve: smoothing is a weighted mean of both sides, and skips what is not finite") {
    CHECK(smoothed({}, 4).empty());
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto flat = smoothed({{1, 3}, {2, nan}, {3, 3}, {4, 3}}, 4);
    REQUIRE(flat.size() == 3);
    for (const loss_point& p : flat) CHECK(p.loss == doctest::Approx(3));
    const auto moved = smoothed({{1, 4}, {2, 0}, {3, 8}}, 2);
    CHECK(moved[0].loss == doctest::Approx((4 + 0.25 * 8) / 1.75));
    CHECK(moved[1].loss == doctest::Approx((0.5 * 4 + 0.5 * 8) / 2));
    CHECK(moved[2].step == 3);
    CHECK(smoothed({{1, 4}, {2, 0}}, 0)[1].loss == 0);
}

TEST_CASE("loss curve: one page with every series, at its place") {
    loss_curve curve;
    curve.title = "a < b & c";
    curve.validation = {{50, 3}, {100, 2}};
    for (int i = 1; i <= 100; ++i) curve.training.push_back({static_cast<double>(i), 5 - 0.03 * i});
    curve.baseline = 4;
    curve.baseline_name = "bigram";
    const std::string page = loss_curve_html(curve);
    CHECK(page.find("a &lt; b &amp; c") != page.npos);
    CHECK(count_of(page, "<polyline") == 3);
    CHECK(count_of(page, "<circle") == 2);
    CHECK(page.find("bigram 4.000") != page.npos);
    CHECK(page.find("validation 2.000") != page.npos);
    CHECK(page.find("<circle cx=\"940\" cy=\"440") != page.npos);  // the last step, and the lowest loss above a margin
    CHECK(count_of(page, "src=") + count_of(page, "href=") == 0);  // nothing from elsewhere
}

TEST_CASE("loss curve: spikes and what is not finite do not spoil the scale, and no data is no error") {
    loss_curve curve;
    for (int i = 1; i <= 1000; ++i) curve.training.push_back({static_cast<double>(i), 3 + 0.001 * i});
    curve.training[500].loss = 1e9;
    curve.training[501].loss = std::numeric_limits<double>::infinity();
    const std::string page = loss_curve_html(curve);
    CHECK(page.find("1000000000") == page.npos);
    CHECK(page.find("nan") == page.npos);
    CHECK(page.find("inf") == page.npos);
    CHECK(loss_curve_html({}).find("</svg>") != std::string::npos);
}
