// A routing record as a file, for runs that are not in one process.
#pragma once

#include <fathom/checkpoint/safetensors.hpp>
#include <fathom/train/routing_record.hpp>
#include <span>
#include <string>
#include <vector>

namespace fathom::train {

/// Writes ids[layers, sequences, length, top_k] and the number of experts of a layer as a safetensors file: one rank
/// does.
inline void save_routes(const routing_record& routes, const std::string& path) {
    const routing_record::extents& of = routes.of();
    const std::vector<safetensors::stored_tensor> tensors{
        {"ids",
         safetensors::dtype::i32,
         {of.layers, of.sequences, of.length, of.top_k},
         std::as_bytes(std::span{routes.ids()}),
         {}},
        {"experts", safetensors::dtype::i64, {}, std::as_bytes(std::span{&of.experts, 1}), {}}};
    safetensors::write(path, tensors);
}

/// Reads what save_routes wrote; whether it fits is looked at where it is followed. Errors: another file, or a number
/// that is no expert's, named.
[[nodiscard]] inline routing_record load_routes(const std::string& path) {
    const safetensors::file from{path};
    const safetensors::stored_tensor& stored = from.at("ids");
    if (stored.shape.size() != 4)
        fail(stored.place(), "found shape ", safetensors::text_of_shape(stored.shape),
             ", expected [layers, sequences, length, top_k]");
    std::vector<std::int64_t> numbers(stored.size());
    safetensors::read_as(stored, std::span{numbers});
    integer experts = 0;
    safetensors::read_as(from.at("experts"), std::span{&experts, 1});
    routing_record routes{{stored.shape[0], stored.shape[1], stored.shape[2], experts, stored.shape[3]}};
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (numbers[i] < -1 || numbers[i] >= experts)
            fail(stored.place(), "found ", numbers[i], " at index ", i, ", expected an expert in [0, ", experts,
                 "), or -1 for none");
        routes.ids()[i] = static_cast<std::int32_t>(numbers[i]);
    }
    return routes;
}

}  // namespace fathom::train
