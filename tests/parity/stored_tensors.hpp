// Tensors of a running model beside those that a file stores under a prefix.
#pragma once

#include <span>
#include <string>

#include "oracle.hpp"

namespace fathom::parity_test {

/// Every tensor found is stored under the prefix and within the bound, and none is stored beside.
template <class T, class Tensors>
void check_tensors(const safetensors::file& io, const std::string& prefix, const Tensors& found, double bound) {
    for (const auto& tensor : found) {
        const std::string name = prefix + tensor.name;
        INFO(name);
        CHECK(parity::distance<T>(std::span<const T>{tensor.numbers}, parity::numbers(io, name)) <= bound);
    }
    std::size_t stored = 0;
    for (const auto& tensor : io.tensors()) stored += tensor.name.starts_with(prefix) ? 1 : 0;
    CHECK(found.size() == stored);
}

}  // namespace fathom::parity_test
