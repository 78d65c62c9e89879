// What tests of the CUDA runtime stand on: the stand-in as at its start, and what an error says.
#pragma once

#include <fathom/cuda.hpp>
#include <initializer_list>
#include <string>

#include "../../../cuda/stand_in.hpp"

namespace fathom::test {

inline gpu::machine& fresh_gpu() {
    gpu::now().reset();
    return gpu::now();
}
/// The stand-in's one GPU, opened by a rank.
struct opened_gpu {
    gpu::machine& machine = fresh_gpu();
    cuda::gpu device{0, {}, gpu::calls()};
};

template <class Body> std::string said(Body&& body) {
    try {
        body();
    } catch (const error& problem) {
        return problem.what();
    }
    return "nothing";
}

/// A kernel that does nothing but say what it would touch.
inline void kernel(const cuda::queue& on, const char* name, std::initializer_list<cuda::access> touched) {
    on.enqueue(name, touched, [](void*) {});
}

}  // namespace fathom::test
