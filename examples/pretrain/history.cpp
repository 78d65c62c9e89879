// Reads logs and saved settings back.
#include "history.hpp"

#include <sys/stat.h>
#include <fathom/core/file.hpp>
#include <fathom/core/json.hpp>

namespace pretrain {

using fathom::json::value;

history go_on_with_log(const std::string& path, std::int64_t last_step) {
    history past;
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return past;
    std::string kept;
    {
        const fathom::mapped_file file{path};
        std::string_view rest = file.text();
        for (std::size_t end; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1)) {
            const std::string_view text = rest.substr(0, end);
            const value line = fathom::json::parse(text, path);
            const double step = line.at("step").as_number();
            if (step > static_cast<double>(last_step)) break;
            kept += std::string{text} + '\n';
            const bool training = line.at("kind").as_string() == "step";
            if (training) past.seconds += line.at("seconds").as_number();
            const value& loss = line.at("cross_entropy");
            if (loss.is_number()) (training ? past.training : past.validation).push_back({step, loss.as_number()});
        }
    }
    fathom::write_atomically(path, kept);
    return past;
}

std::vector<std::string> saved_settings(const std::string& path) {
    std::vector<std::string> all;
    const value saved = fathom::json::parse_file(path);
    for (const auto& [name, set] : saved.at("settings").members())
        all.push_back(name + '=' + (set.is_string() ? set.as_string() : fathom::json::write(set)));
    return all;
}

}  // namespace pretrain
