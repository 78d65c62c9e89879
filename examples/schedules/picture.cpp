// A schedule as the picture that papers draw: a row a rank, a box an action, time to the right.
#include "picture.hpp"

#include <algorithm>
#include <cmath>
#include <fathom/parallel/schedule/timeline.hpp>
#include <vector>

namespace schedules {

namespace {

using fathom::text_of;
using namespace fathom::schedule;

constexpr double left = 62, top = 62, row = 28, box = 24;

constexpr const char* style = R"(<style>
svg { --paper: #fff; --ink: #1c1e21; --faint: #ececec; --quiet: #6b6f76;
  --forward: #2f66b5; --backward: #2c7d4b; --input: #1a8088; --weight: #b0622a; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #16181c; --ink: #e6e6e6; --faint: #262a31; --quiet: #9aa0a8;
    --forward: #3a73c6; --backward: #2f8751; --input: #1e8a93; --weight: #bb6a30; } }
text { fill: var(--quiet); font: 12px system-ui, sans-serif; }
.title { fill: var(--ink); font-size: 14px; font-weight: 600; }
.number { fill: #fff; font-size: 11px; text-anchor: middle; font-variant-numeric: tabular-nums; }
.late { fill: var(--ink); } .small { font-size: 9px; } .rank { text-anchor: end; } .tick { text-anchor: middle; }
.row { fill: var(--faint); } .forward { fill: var(--forward); } .backward { fill: var(--backward); }
.input { fill: var(--input); } .weight { fill: var(--weight); } rect.box { stroke: var(--paper); }
</style>
)";

const char* kind_of(work w) {
    switch (w) {
        case work::backward_input:
            return "input";
        case work::backward_weight:
            return "weight";
        case work::backward:
            return "backward";
        default:
            return "forward";
    }
}

/// Later chunks are fainter.
double strength(int chunk) { return chunk == 0 ? 1 : 0.45 / std::sqrt(chunk); }

void put_box(std::string& out, double x, double y, double width, double height, const char* kind, int chunk,
             int number) {
    out += text_of("<rect class=\"box ", kind, "\" x=\"", x, "\" y=\"", y, "\" width=\"", width, "\" height=\"", height,
                   "\" rx=\"2\"");
    if (chunk > 0) out += text_of(" fill-opacity=\"", strength(chunk), "\"");
    out += "/>";
    const double letters = number < 10 ? 1 : number < 100 ? 2 : 3;
    const bool small = height < 20 || width < 7 * letters + 2;
    if (width >= 5 * letters + 1)
        out += text_of("<text class=\"number", chunk > 0 ? " late" : "", small ? " small" : "", "\" x=\"",
                       x + width / 2, "\" y=\"", y + height / 2 + (small ? 3.2 : 4), "\">", number, "</text>");
    out += '\n';
}

/// The kinds that occur, with their names.
void put_legend(std::string& out, const table& t, double y) {
    bool seen[static_cast<int>(work::exchange) + 1]{};
    for (const action& a : t.actions) seen[static_cast<int>(a.what)] = true;
    double x = left;
    const auto entry = [&](const char* kind, int chunk, const char* name, bool halves) {
        out += text_of("<rect class=\"", kind, "\" x=\"", x, "\" y=\"", y - 10, "\" width=\"12\" height=\"",
                       halves ? 6 : 12, "\" fill-opacity=\"", strength(chunk), "\"/>");
        if (halves)
            out += text_of("<rect class=\"backward\" x=\"", x, "\" y=\"", y - 4, "\" width=\"12\" height=\"6\"/>");
        out += text_of("<text x=\"", x + 18, "\" y=\"", y, "\">", name, "</text>\n");
        x += 18 + 6.4 * static_cast<double>(std::string_view{name}.size()) + 22;
    };
    entry("forward", 0, "forward", false);
    if (seen[static_cast<int>(work::backward)]) entry("backward", 0, "backward", false);
    if (seen[static_cast<int>(work::backward_input)]) entry("input", 0, "input's gradient", false);
    if (seen[static_cast<int>(work::backward_weight)]) entry("weight", 0, "weights' gradient", false);
    if (seen[static_cast<int>(work::overlapped)]) entry("forward", 0, "forward and backward overlapped", true);
    if (t.shape.chunks > 1)
        entry("forward", 1, t.shape.way == route::two_way ? "fainter: from the other end" : "fainter: later chunk",
              false);
}

}  // namespace

std::string picture(const built& made, const proof& proof, const costs& costs) {
    const table t = made.view();
    std::vector<double> begin(t.actions.size()), end(t.actions.size());
    timeline(t, costs, begin.data(), end.data());

    const double unit = std::clamp(1'100 / proof.time, 4.0, 24.0),
                 width = std::max(left + unit * proof.time + 24, 760.0);
    const double below = top + row * t.shape.ranks, height = below + 66;
    std::string out = text_of("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, " ", height,
                              "\" role=\"img\" aria-label=\"pipeline schedule\">\n", style,
                              "<rect width=\"100%\" height=\"100%\" style=\"fill: var(--paper)\"/>\n");
    std::string name;  // a name may have <2>
    for (const char c : made.name()) name += c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
    out += text_of("<text class=\"title\" x=\"", left, "\" y=\"26\">", name, "</text><text x=\"", left, "\" y=\"46\">",
                   t.shape.ranks, " ranks, ", t.shape.micro_batches, " micro-batches: time ", proof.time,
                   ", of which a rank idles at most ", proof.most(&rank_figures::idle), "; at most ",
                   proof.most(&rank_figures::activations), " activations alive</text>\n");

    for (int rank = 0; rank < t.shape.ranks; ++rank) {
        const double y = top + row * rank;
        out += text_of("<text class=\"rank\" x=\"", left - 8, "\" y=\"", y + 16, "\">rank ", rank,
                       "</text><rect class=\"row\" x=\"", left, "\" y=\"", y, "\" width=\"", unit * proof.time,
                       "\" height=\"", box, "\"/>\n");
        for (const action& a : t.of(rank)) {
            if (a.what == work::exchange) continue;
            const auto i = static_cast<std::size_t>(&a - t.actions.data());
            const double x = left + unit * begin[i], wide = unit * (end[i] - begin[i]);
            if (a.what == work::overlapped) {
                put_box(out, x, y, wide, box / 2, "forward", a.chunk, a.micro_batch);
                put_box(out, x, y + box / 2, wide, box / 2, "backward", a.backward_chunk, a.backward_micro_batch);
            } else {
                put_box(out, x, y, wide, box, kind_of(a.what), a.chunk, a.micro_batch);
            }
        }
    }

    double step = std::pow(10, std::floor(std::log10(proof.time / 4)));
    while (proof.time / step > 12) step *= 2;
    for (int i = 0; i * step <= proof.time; ++i)
        out += text_of("<text class=\"tick\" x=\"", left + unit * i * step, "\" y=\"", below + 14, "\">", i * step,
                       "</text>");
    put_legend(out, t, below + 46);
    return out + "</svg>\n";
}

}  // namespace schedules
