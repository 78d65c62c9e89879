// Everything about a run that people change daily, in one struct with a name for each number, so that a command line
// reaches all of it.
#pragma once

#include <charconv>
#include <cstdint>
#include <fathom/core/error.hpp>
#include <fathom/optim/adamw.hpp>
#include <fathom/optim/words.hpp>
#include <fathom/train/engine.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

namespace fathom {

/// What a run takes at its start. Rates and weights are those of DeepSeek-V3 where it has them.
struct run_settings {
    double learning_rate = 2.2e-4;  // peak
    integer warmup_steps = 2000;
    integer training_steps = 100'000;
    std::string schedule = "cosine";  // a name or stretches: optim::stretches_of
    integer micro_batches = 1;        // of the recipe's size, a step
    std::uint64_t seed = 1;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    double clip = 1;  // global gradient norm; 0: off
    double mtp_lambda = 0.3;
    double balance_alpha = 1e-4;
    double bias_update_speed = 1e-3;
    double z_loss = 0;
    double gradient_predivide = 1;  // what gradients are divided by before they are summed over ranks, then multiplied
    bool across_documents = false;  // attention and targets go over the end of a document
    int workers = 0;                // threads; 0: one a hardware thread
    bool health_check = true;
};

namespace detail {

/// call(name, member, what it is) for every setting, in the order in which people read them.
template <class Call> void each_setting(auto& s, Call&& call) {
    call("learning_rate", s.learning_rate, "peak learning rate");
    call("warmup_steps", s.warmup_steps, "steps of linear warm-up");
    call("training_steps", s.training_steps, "steps of the whole run, which the schedule is laid over");
    call("schedule", s.schedule, "v3, v2, moe, llm, wsd, cosine, constant, or SHAPE:UNTIL:FACTOR,...");
    call("micro_batches", s.micro_batches, "micro-batches whose gradients one step adds up");
    call("seed", s.seed, "seed of initialisation and of the order of the data");
    call("beta1", s.beta1, "AdamW's decay of the first moment");
    call("beta2", s.beta2, "AdamW's decay of the second moment");
    call("epsilon", s.epsilon, "AdamW's epsilon");
    call("weight_decay", s.weight_decay, "AdamW's weight decay");
    call("clip", s.clip, "bound on the global gradient norm; 0 is off");
    call("mtp_lambda", s.mtp_lambda, "weight of multi-token prediction");
    call("balance_alpha", s.balance_alpha, "weight of the sequence-wise balance loss; 0 is off");
    call("bias_update_speed", s.bias_update_speed, "how far a router's bias moves in a step; 0 is off");
    call("z_loss", s.z_loss, "weight of the mean squared log of the softmax's denominator; 0 is off");
    call("gradient_predivide", s.gradient_predivide,
         "what gradients are divided by before they are summed over ranks, and their sum multiplied by; 1 is off");
    call("across_documents", s.across_documents, "true: attention and targets go over the end of a document");
    call("workers", s.workers, "threads; 0 is one a hardware thread");
    call("health_check", s.health_check, "false: starts without a look at memory and speed of every rank");
}

template <class Number> void read_number(std::string_view name, std::string_view text, Number& to) {
    Number read{};
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), read);
    if (problem != std::errc{} || end != text.data() + text.size())
        fail("setting ", name, ": found \"", text, "\", expected a",
             std::is_integral_v<Number> ? " whole number" : " number");
    to = read;
}
inline void read_setting(std::string_view name, std::string_view text, double& to) { read_number(name, text, to); }
inline void read_setting(std::string_view name, std::string_view text, integer& to) { read_number(name, text, to); }
inline void read_setting(std::string_view name, std::string_view text, int& to) { read_number(name, text, to); }
inline void read_setting(std::string_view name, std::string_view text, std::uint64_t& to) {
    read_number(name, text, to);
}
inline void read_setting(std::string_view, std::string_view text, std::string& to) { to = text; }
inline void read_setting(std::string_view name, std::string_view text, bool& to) {
    if (text != "true" && text != "false") fail("setting ", name, ": found \"", text, "\", expected true or false");
    to = text == "true";
}

}  // namespace detail

/// Sets one number by `name=value`. Errors: a name that is no setting (all names are listed), a value that does not
/// read.
inline void set(run_settings& settings, std::string_view assignment) {
    const std::size_t equals = assignment.find('=');
    if (equals == std::string_view::npos) fail("setting \"", assignment, "\": expected name=value");
    const std::string_view name = assignment.substr(0, equals);
    bool found = false;
    std::string names;
    detail::each_setting(settings, [&](std::string_view known, auto& member, const char*) {
        names += text_of(names.empty() ? "" : ", ", known);
        if (known != name) return;
        detail::read_setting(name, assignment.substr(equals + 1), member);
        found = true;
    });
    if (!found) fail("setting \"", name, "\" is not known, expected one of ", names);
}

/// Errors: a number outside its range; names it, its value and the range.
inline void check(const run_settings& s) {
    const auto at_least = [](const char* name, auto value, auto least) {
        if (!(value >= least)) fail("setting ", name, ": found ", value, ", expected at least ", least);
    };
    at_least("micro_batches", s.micro_batches, integer{1});
    at_least("clip", s.clip, 0.0);
    at_least("mtp_lambda", s.mtp_lambda, 0.0);
    at_least("balance_alpha", s.balance_alpha, 0.0);
    at_least("bias_update_speed", s.bias_update_speed, 0.0);
    at_least("z_loss", s.z_loss, 0.0);
    at_least("workers", s.workers, 0);
    if (!(s.gradient_predivide > 0))
        fail("setting gradient_predivide: found ", s.gradient_predivide, ", expected a number above 0");
}

}  // namespace fathom
