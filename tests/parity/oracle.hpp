// What parity tests share: stored tensors as numbers, and the distance by which two tensors are compared.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fathom/checkpoint/safetensors.hpp>
#include <fathom/train/pretrained.hpp>
#include <span>
#include <string>
#include <vector>

namespace parity {

inline std::string path(const std::string& below_tests) {
    const char* root = std::getenv("FATHOM_SOURCE_ROOT");
    return std::string{root != nullptr ? root : "."} + "/tests/" + below_tests;
}

inline std::vector<double> numbers(const fathom::safetensors::file& file, const std::string& name) {
    const auto& stored = file.at(name);
    std::vector<double> all(stored.size());
    fathom::safetensors::read_as<double>(stored, all);
    return all;
}

inline std::vector<std::int32_t> integers(const fathom::safetensors::file& file, const std::string& name) {
    const auto& stored = file.at(name);
    std::vector<std::int32_t> all(stored.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        std::int64_t value = 0;
        std::memcpy(&value, stored.bytes.data() + 8 * i, 8);
        all[i] = static_cast<std::int32_t>(value);
    }
    return all;
}

/// max|a - b| / max|b|; a tensor that is all zero must be met exactly.
template <class T> double distance(std::span<const T> a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double most = 0, apart = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
        most = std::max(most, std::abs(b[i]));
        const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
        apart = std::isnan(difference) ? INFINITY : std::max(apart, difference);
    }
    return most > 0 ? apart / most : apart;
}

/// Targets as the engine takes them: labels moved one to the left in each sequence, the last one ignored.
inline std::vector<std::int32_t> shifted(const std::vector<std::int32_t>& labels, fathom::integer length) {
    std::vector<std::int32_t> targets(labels.size(), fathom::train::ignored);
    for (std::size_t i = 0; i < labels.size(); ++i)
        if ((static_cast<fathom::integer>(i) + 1) % length != 0) targets[i] = labels[i + 1];
    return targets;
}

/// Where the document of each token starts in its sequence, from positions that restart with every document.
inline std::vector<std::int32_t> starts_of(const std::vector<std::int32_t>& positions, fathom::integer length) {
    std::vector<std::int32_t> starts(positions.size());
    for (std::size_t i = 0; i < positions.size(); ++i)
        starts[i] = static_cast<std::int32_t>(static_cast<fathom::integer>(i) % length) - positions[i];
    return starts;
}

}  // namespace parity
