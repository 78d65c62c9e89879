// The storages of a model as a list: its types are walked once, and what reads the list is compiled once for all.
#pragma once

#include <fathom/core/error.hpp>
#include <fathom/nn/parameter.hpp>
#include <string>
#include <vector>

namespace fathom::train::detail {

/// A storage with what the names of its parts begin with.
struct named_storage {
    nn::storage facts;
    std::string prefix;
};

/// In the order of their global index.
template <class Transformer> std::vector<named_storage> storages_of(const Transformer& model) {
    std::vector<named_storage> all;
    model.template each_parameter<typename Transformer::number>(nullptr,
                                                                [&](auto&, const nn::storage& facts, auto... prefixes) {
                                                                    all.push_back({facts, text_of(prefixes...)});
                                                                });
    return all;
}

}  // namespace fathom::train::detail
