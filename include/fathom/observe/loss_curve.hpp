// How a run learned, as one picture or page that needs nothing beside it: losses over steps, drawn in SVG.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fathom/core/error.hpp>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::observe {

struct loss_point {
    double step = 0;
    double loss = 0;
};

struct loss_curve {
    std::string title, subtitle;
    std::vector<loss_point> training;    // every step
    std::vector<loss_point> validation;  // where it was measured
    double baseline = 0;                 // a level to beat; 0: none
    std::string baseline_name;
};

/// At each point the mean of all, with weights that fall by 1 - 1 / span from one to the next; without those that are
/// not finite.
[[nodiscard]] inline std::vector<loss_point> smoothed(const std::vector<loss_point>& points, double span) {
    std::vector<loss_point> means;
    std::copy_if(points.begin(), points.end(), std::back_inserter(means),
                 [](const loss_point& p) { return std::isfinite(p.loss); });
    const double keep = 1 - 1 / std::max(span, 1.0);
    struct side {
        double sum = 0, weight = 0;
    };
    std::vector<side> before(means.size());
    side now;
    for (std::size_t i = 0; i < means.size(); ++i) {
        before[i] = now;
        now = {keep * (now.sum + means[i].loss), keep * (now.weight + 1)};
    }
    now = {};
    for (std::size_t i = means.size(); i-- > 0;) {
        const double loss = means[i].loss;
        means[i].loss = (before[i].sum + loss + now.sum) / (before[i].weight + 1 + now.weight);
        now = {keep * (now.sum + loss), keep * (now.weight + 1)};
    }
    return means;
}

namespace detail {

[[nodiscard]] inline std::string html_text(std::string_view text) {
    std::string safe;
    for (const char c : text) {
        if (c == '&')
            safe += "&amp;";
        else if (c == '<')
            safe += "&lt;";
        else if (c == '>')
            safe += "&gt;";
        else
            safe += c;
    }
    return safe;
}

[[nodiscard]] inline std::string decimal(const char* form, double number) {
    char text[64];
    return {text, static_cast<std::size_t>(std::snprintf(text, sizeof text, form, number))};
}

/// A range of values laid over a range of pixels, with marks at 1, 2 or 5 times a power of ten.
struct curve_scale {
    double low, high, at_low, at_high;
    [[nodiscard]] double operator()(double value) const {
        return at_low + (std::clamp(value, low, high) - low) / (high - low) * (at_high - at_low);
    }
    [[nodiscard]] double mark(double marks) const {
        const double rough = (high - low) / marks, power = std::pow(10, std::floor(std::log10(rough)));
        for (const double factor : {1.0, 2.0, 5.0})
            if (factor * power >= rough) return factor * power;
        return 10 * power;
    }
};

[[nodiscard]] inline std::string polyline(const std::vector<loss_point>& points, const curve_scale& x,
                                          const curve_scale& y, const char* style) {
    if (points.empty()) return {};
    std::string line = "<polyline class=\"" + std::string{style} + "\" points=\"";
    const std::size_t stride = points.size() / 2000 + 1;  // more than pixels are of no use
    for (std::size_t i = 0; i < points.size(); ++i)
        if ((i % stride == 0 || i + 1 == points.size()) && std::isfinite(points[i].loss))
            line += decimal("%.1f,", x(points[i].step)) + decimal("%.1f ", y(points[i].loss));
    return line + "\"/>\n";
}

inline constexpr std::string_view curve_style = R"(<style>
:root { --paper: #fff; --ink: #222; --faint: #e4e4e4; --quiet: #777;
  --raw: #b9cde8; --train: #1f5fb4; --valid: #d1495b; --base: #5b8a3c; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181c; --ink: #ddd; --faint: #2c2f36; --quiet: #999;
    --raw: #2d4566; --train: #6ea8f5; --valid: #ff8a96; --base: #9ccc75; } }
svg { font-family: system-ui, sans-serif; }
text { fill: var(--quiet); font-size: 12px; }
polyline { fill: none; stroke-linejoin: round; }
.grid { stroke: var(--faint); } .raw { stroke: var(--raw); stroke-width: 1; }
.train { stroke: var(--train); stroke-width: 2.2; }
.valid { stroke: var(--valid); stroke-width: 2; }
.base { stroke: var(--base); stroke-width: 1.5; stroke-dasharray: 6 5; }
circle { fill: var(--valid); } text.train, text.valid, text.base { stroke: none; font-size: 13px; }
text.train { fill: var(--train); } text.valid { fill: var(--valid); } text.base { fill: var(--base); }
</style>
)";

}  // namespace detail

/// The picture, without titles. Losses that are not finite are left out; so is a spike's part above all but the highest
/// hundredth.
[[nodiscard]] inline std::string loss_curve_svg(const loss_curve& of) {
    using detail::decimal, detail::html_text;
    std::vector<double> losses;
    double last_step = 1;
    for (const auto* points : {&of.training, &of.validation})
        for (const loss_point& p : *points) {
            if (std::isfinite(p.loss)) losses.push_back(p.loss);
            last_step = std::max(last_step, p.step);
        }
    if (of.baseline > 0) losses.push_back(of.baseline);
    std::sort(losses.begin(), losses.end());
    double low = losses.empty() ? 0 : losses.front();
    double high = losses.empty() ? 1 : losses[losses.size() - 1 - losses.size() / 100];
    const double margin = std::max((high - low) * 0.04, 0.01);
    low = std::max(0.0, low - margin);
    high += margin;

    constexpr double width = 960, height = 500, left = 52, right = 940, top = 40, bottom = 456;
    const detail::curve_scale x{0, last_step, left, right}, y{low, high, bottom, top};
    std::string picture = text_of("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, ' ', height,
                                  "\" role=\"img\" aria-label=\"loss over steps\">\n", detail::curve_style);
    const auto text = [&](double at_x, double at_y, const char* anchor, const char* style, const std::string& what) {
        picture += text_of("<text x=\"", at_x, "\" y=\"", at_y, "\" text-anchor=\"", anchor, "\" class=\"", style,
                           "\">", html_text(what), "</text>\n");
    };
    const auto line = [&](double x1, double y1, double x2, double y2, const char* style) {
        picture +=
            text_of("<line x1=\"", x1, "\" y1=\"", y1, "\" x2=\"", x2, "\" y2=\"", y2, "\" class=\"", style, "\"/>\n");
    };
    const double loss_mark = y.mark(8), step_mark = std::max(1.0, x.mark(10));
    for (double mark = std::ceil(low / loss_mark) * loss_mark; mark <= high; mark += loss_mark) {
        line(left, y(mark), right, y(mark), "grid");
        text(left - 8, y(mark) + 4, "end", "", decimal(loss_mark < 0.1 ? "%.2f" : "%.1f", mark));
    }
    for (double mark = 0; mark <= last_step; mark += step_mark)
        text(x(mark), bottom + 20, "middle", "", decimal("%.0f", mark));
    text(right, bottom + 36, "end", "", "step");
    text(left, top - 22, "start", "", "loss (nats a token)");

    picture += detail::polyline(of.training, x, y, "raw");
    const double span = std::max(1.0, static_cast<double>(of.training.size()) / 50);
    const std::vector<loss_point> mean = smoothed(of.training, span);
    picture += detail::polyline(mean, x, y, "train");
    if (of.baseline > 0) {
        line(left, y(of.baseline), right, y(of.baseline), "base");
        text(left + 6, y(of.baseline) - 7, "start", "base", of.baseline_name + decimal(" %.3f", of.baseline));
    }
    picture += detail::polyline(of.validation, x, y, "valid");
    for (const loss_point& p : of.validation)
        if (std::isfinite(p.loss))
            picture += text_of("<circle cx=\"", x(p.step), "\" cy=\"", y(p.loss), "\" r=\"3.5\"><title>step ", p.step,
                               ": ", decimal("%.4f", p.loss), "</title></circle>\n");
    if (!mean.empty()) text(right - 180, top - 22, "end", "train", "training" + decimal(" %.3f", mean.back().loss));
    if (!of.validation.empty())
        text(right - 4, top - 22, "end", "valid", "validation" + decimal(" %.3f", of.validation.back().loss));
    return picture + "</svg>\n";
}

/// The picture with its titles as a page.
[[nodiscard]] inline std::string loss_curve_html(const loss_curve& of) {
    return text_of("<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>",
                   detail::html_text(of.title),
                   "</title>\n<style>\n"
                   "body { margin: 2em auto; max-width: 960px; padding: 0 1em; background: var(--paper); "
                   "color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }\n"
                   "h1 { font-size: 1.3em; margin: 0; } p { margin: .2em 0 1em; color: var(--quiet); }\n"
                   "svg { width: 100%; height: auto; }\n</style>\n<h1>",
                   detail::html_text(of.title), "</h1>\n<p>", detail::html_text(of.subtitle), "</p>\n",
                   loss_curve_svg(of), "</html>\n");
}

}  // namespace fathom::observe
