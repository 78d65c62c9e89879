// A run's whole state on disk by global names: saved in one piece, found again after any crash, and refused for another
// run.
#pragma once

#include <cstddef>
#include <fathom/checkpoint/directory.hpp>
#include <fathom/checkpoint/safetensors.hpp>
#include <fathom/core/json.hpp>
#include <fathom/models/hugging_face.hpp>
#include <fathom/train/pretrained.hpp>
#include <fathom/train/run.hpp>
#include <span>
#include <string>
#include <vector>

namespace fathom::checkpoint {

namespace detail {

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

template <class E> safetensors::dtype dtype_for() {
    return std::is_same_v<E, double>  ? safetensors::dtype::f64
           : std::is_same_v<E, float> ? safetensors::dtype::f32
                                      : safetensors::dtype::bf16;
}

template <class E>
void add_tensors(std::vector<safetensors::stored_tensor>& all, const std::vector<train::named_numbers<E>>& numbers,
                 const std::string& prefix) {
    for (const auto& n : numbers)
        all.push_back({prefix + n.name, dtype_for<E>(), n.shape, std::as_bytes(std::span<const E>{n.numbers}), {}});
}

template <class E>
void read_tensors(const safetensors::file& from, const std::vector<train::named_numbers<E>>& numbers,
                  const std::string& prefix, std::size_t& seen) {
    for (const auto& n : numbers) {
        const safetensors::stored_tensor& found = from.at(prefix + n.name);
        if (found.shape != n.shape || found.type != dtype_for<E>())
            fail(found.place(), "found shape ", safetensors::text_of_shape(found.shape), " and type ",
                 safetensors::name_of(found.type), ", expected ", safetensors::text_of_shape(n.shape), " and ",
                 number_file_name<E>);
        std::memcpy(n.numbers.data(), found.bytes.data(), found.bytes.size());
        ++seen;
    }
}

/// call(prefix, numbers) for each state that a checkpoint holds: master weights, moments, router biases.
template <class Run, class Call> void each_state(Run& run, Call&& call) {
    auto& engine = run.engine();
    using view = train::parameter_view<typename Run::engine_type::T, typename Run::engine_type::A>;
    call("weight/", train::named_state(engine, &view::master));
    call("first_moment/", train::named_state(engine, &view::first_moment));
    call("second_moment/", train::named_state(engine, &view::second_moment));
    call("router_bias/", train::named_router_biases(engine));
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
    all.emplace_back("format", 1);
    all.emplace_back("step", run.steps_done());
    all.emplace_back("epoch", run.data_position().epoch);
    all.emplace_back("sequence", run.data_position().sequence);
    all.emplace_back("weights", number_name<typename Run::engine_type::T>);
    all.emplace_back("instruction_set", instruction_set());
    // A composed model has no config.json; the names and shapes of its tensors are what a resume compares.
    const models::model_config& config = run.facts().config;
    all.emplace_back("model", config.type == models::family::composed ? json::value{} : models::config_to_json(config));
    all.emplace_back("settings", json::value{std::move(settings)});
    return json::value{std::move(all)};
}

}  // namespace detail

/// Saves a run's state below `folder` (step_00000100/), whole or not at all; the last `keep` saves stay. All ranks call
/// it, which hold the same state: the first one writes, and all return when it is done. Errors: what
/// the system refuses, with path and reason; what was saved before stays.
template <class Run> void save(Run& run, const std::string& folder, std::size_t keep = 2) {
    const auto met = [&] { run.ranks().run(comm::barrier().from("save")); };
    if (run.ranks().rank() != 0) return met();
    save_step(folder, run.steps_done(), keep, [&](const std::string& into) {
        std::vector<safetensors::stored_tensor> tensors;
        detail::each_state(
            run, [&](const char* prefix, const auto& numbers) { detail::add_tensors(tensors, numbers, prefix); });
        safetensors::write(into + "/state.safetensors", tensors);
        write_atomically(into + "/run.json", json::write(detail::description_of(run), 2));
    });
    met();
}

/// Continues a run from the last whole save below `folder`, if there is one; otherwise the run stays as it is. Errors:
/// a save of another model or number format; names file, key, what was found and what the recipe has.
template <class Run> bool resume(Run& run, const std::string& folder) {
    const auto last = latest_complete(folder);
    if (!last) return false;
    const std::string path = last->path + "/run.json";
    const json::value description = json::parse_file(path);
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
    const safetensors::file state{last->path + "/state.safetensors"};
    std::size_t seen = 0;
    detail::each_state(
        run, [&](const char* prefix, const auto& numbers) { detail::read_tensors(state, numbers, prefix, seen); });
    if (seen != state.tensors().size())
        fail(state.path(), ": found ", state.tensors().size(), " tensors, expected the ", seen,
             " of the described run");
    run.engine().round_weights();
    run.engine().set_steps_done(description.at("step").as_int());
    run.data_position() = {description.at("epoch").as_int(), description.at("sequence").as_int()};
    return true;
}

}  // namespace fathom::checkpoint
