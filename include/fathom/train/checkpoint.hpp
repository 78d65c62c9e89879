// A run's whole state on disk by global names: saved in one piece, found again after any crash, and refused for another
// run.
#pragma once

#include <cstddef>
#include <fathom/checkpoint/directory.hpp>
#include <fathom/checkpoint/safetensors.hpp>
#include <fathom/checkpoint/sliced.hpp>
#include <fathom/checkpoint/together.hpp>
#include <fathom/core/json.hpp>
#include <fathom/models/hugging_face.hpp>
#include <fathom/train/pretrained.hpp>
#include <fathom/train/run.hpp>
#include <span>
#include <string>
#include <vector>

namespace fathom::checkpoint {

namespace detail {

/// Of run.json and the files beside it.
inline constexpr int format = 2;

/// The vector instructions that this program was compiled for: bit-for-bit claims hold within one set.
inline const char* instruction_set() {
#if defined(__AVX512BF16__)
    return "avx512_bf16";
#elif defined(__AVX512F__)
    return "avx512";
#elif defined(__AVX2__)
    return "avx2";
#else
    return "baseline";
#endif
}

/// call(prefix, slice, numbers, writes) for all that a checkpoint holds and this rank keeps: master weights, moments
/// and router biases.
template <class Run, class Call> void each_state(Run& run, Call&& call) {
    auto& engine = run.engine();
    using T = typename Run::engine_type::T;
    using A = typename Run::engine_type::A;
    train::each_held_slice(engine, [&](const train::held_slice<T, A>& s) {
        call("weight/", s.of, s.master, s.writes);
        call("first_moment/", s.of, s.first_moment, s.writes);
        call("second_moment/", s.of, s.second_moment, s.writes);
    });
    for (const auto& bias : train::named_router_biases(engine))
        call("router_bias/", train::detail::slice_of(bias), bias.numbers.data(), engine.state().writes_buffers());
}

/// The degrees of a run, for people.
template <class Run> json::object layout_of(Run& run) {
    auto& engine = run.engine();
    const degrees& d = engine.links().of;
    const auto& schedule = engine.pipeline_schedule();
    return {{"dp", d.dp},
            {"pp", d.pp},
            {"tp", d.tp},
            {"cp", d.cp},
            {"ep", d.ep},
            {"etp", d.etp},
            {"zero", engine.shape().shards.zero},
            {"schedule", d.pp > 1 && schedule.has_value() ? json::value{schedule->name()} : json::value{}}};
}
inline std::string text_of_layout(const json::value& layout) {
    std::string text;
    for (const auto& [name, value] : layout.members())
        if (!value.is_null())
            text += text_of(text.empty() ? "" : " ", name, ' ',
                            value.is_string() ? value.as_string() : text_of(value.as_int()));
    return text;
}

template <class Run> json::value description_of(Run& run) {
    json::object settings;
    fathom::detail::each_setting(run.settings(), [&](const char* name, const auto& value, const char*) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::uint64_t>)
            settings.emplace_back(name, std::to_string(value));
        else
            settings.emplace_back(name, value);
    });
    json::object all;
    all.emplace_back("format", format);
    all.emplace_back("step", run.steps_done());
    all.emplace_back("epoch", run.data_position().epoch);
    all.emplace_back("sequence", run.data_position().sequence);
    all.emplace_back("weights", number_name<typename Run::engine_type::T>);
    all.emplace_back("instruction_set", instruction_set());
    // A composed model has no config.json; the names and shapes of its tensors are what a resume compares.
    const models::model_config& config = run.facts().config;
    all.emplace_back("model", config.type == models::family::composed ? json::value{} : models::config_to_json(config));
    all.emplace_back("settings", json::value{std::move(settings)});
    all.emplace_back("files", run.ranks().size());
    all.emplace_back("layout", json::value{layout_of(run)});
    return json::value{std::move(all)};
}

/// Reads what this rank keeps out of the files of a save, whoever wrote them.
template <class Run> void read_state(Run& run, const std::string& folder, integer files) {
    std::vector<std::string> paths;
    for (integer rank = 0; rank < files; ++rank) paths.push_back(folder + '/' + file_of_rank("state", rank, files));
    const sliced_matrices saved{paths};
    std::vector<std::string> known;
    each_state(run, [&]<class E>(const char* prefix, slice of, E* numbers, bool) {
        of.name = prefix + of.name;
        saved.copy(of, train::detail::dtype_for<E>(), reinterpret_cast<std::byte*>(numbers));
        known.push_back(std::move(of.name));
    });
    std::vector<std::string> names;
    for (const auto& s : saved.slices()) names.push_back(s.of.name);
    if (const auto foreign = train::detail::unknown_to_all(run.ranks(), names, std::move(known)))
        fail(folder, ": found tensor ", *foreign, ", expected those of the described run only");
}

}  // namespace detail

/// Saves a run's state below `folder` (step_00000100/), whole or not at all; the last `keep` saves stay. All ranks call
/// it and see the folder: each writes, under global names, its part of what it keeps, whole matrices where it has them.
/// Any layout of the same model can go on from it. Errors: what the system refuses, with path and reason, on all ranks;
/// what was saved before stays.
template <class Run> void save(Run& run, const std::string& folder, std::size_t keep = 2, file_hook hook = nullptr) {
    const std::int64_t step = run.steps_done();
    std::vector<safetensors::stored_tensor> tensors;
    detail::each_state(run, [&](const char* prefix, const slice& of, const auto* numbers, bool writes) {
        if (writes) tensors.push_back(train::detail::tensor_of(of, numbers, prefix));
    });
    write_together(
        run.ranks(), detail::partial_of(step_path(folder, step)), "state",
        [&](const auto& fill) { save_step(folder, step, keep, fill, hook); },
        [&](const std::string& path) { safetensors::write(path, tensors, {}, hook); },
        [&](const std::string& into, std::vector<sealed_member> members) {
            write_atomically(into + "/run.json", json::write(detail::description_of(run), 2), hook);
            return members;
        });
}

/// Continues a run from the last whole save below `folder`, if there is one, whatever layout wrote it; otherwise the
/// run stays as it is. All ranks call it. Errors: a save of another model or number format; names file, key, what was
/// found and what the recipe has, with both layouts.
template <class Run> bool resume(Run& run, const std::string& folder) {
    const auto last = latest_complete(run.ranks(), folder);
    if (!last) return false;
    const std::string path = last->path + "/run.json";
    const json::value description = json::parse_file(path);
    if (const std::int64_t found = description.at("format").as_int(); found != detail::format)
        fail(path, ": format is ", found, ", expected ", detail::format);
    const std::string saved_on = detail::text_of_layout(description.at("layout"));
    const std::string here = detail::text_of_layout(json::value{detail::layout_of(run)});
    safetensors::detail::within(text_of("saved by ranks of ", saved_on, ", read by ranks of ", here), [&] {
        const std::string weights = number_name<typename Run::engine_type::T>;
        if (const std::string& found = description.at("weights").as_string(); found != weights)
            fail(path, ": weights are ", found, ", expected ", weights, " as the recipe says");
        const models::model_config& config = run.facts().config;
        const bool composed = config.type == models::family::composed;
        const json::value& model = description.at("model");
        if (model.is_null() != composed)
            fail(path, ": model is ", composed ? "of a family" : "a composed one", ", expected ",
                 composed ? "a composed one" : "one of a family", " as the recipe says");
        if (!composed) models::check_same(config, models::config_from_json(model, path), path);
        detail::read_state(run, last->path, description.at("files").as_int());
    });
    run.engine().round_weights();
    run.engine().set_steps_done(description.at("step").as_int());
    run.data_position() = {description.at("epoch").as_int(), description.at("sequence").as_int()};
    return true;
}

}  // namespace fathom::checkpoint
