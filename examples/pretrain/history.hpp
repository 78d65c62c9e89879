// What a run saw so far, over all the times it went on: kept in its log, drawn as its loss curve.
#pragma once

#include <cstdint>
#include <fathom/observe/loss_curve.hpp>
#include <string>
#include <vector>

namespace pretrain {

struct history {
    std::vector<fathom::observe::loss_point> training, validation;
    double seconds = 0;  // of all steps
};

/// Reads a log up to a step and cuts it off there: what came after the last save will come again. A log that is missing
/// or no plain file gives an empty history.
[[nodiscard]] history go_on_with_log(const std::string& path, std::int64_t last_step);

/// The settings of a save's run.json as name=value.
[[nodiscard]] std::vector<std::string> saved_settings(const std::string& path);

}  // namespace pretrain
