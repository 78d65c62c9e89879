// What a run's parameters look like from outside: for checkpoints, reports and comparisons.
#pragma once

#include <fathom/nn/parameter.hpp>
#include <fathom/tensor/matrix.hpp>
#include <string>

namespace fathom::train {

/// One parameter of a run under its global name. Under ZeRO, master and moments are not here, and from stage 2 on
/// gradients of blocks only while these work.
template <class T, class A> struct parameter_view {
    std::string name;  // `*` stands for the number of a matrix in a stack
    nn::storage storage;
    int part = 0;
    integer number = 0;  // the global index of the part's first matrix
    matrix<T> value;     // the whole storage; the part's matrices lie in it as nn::part says
    matrix<A> master, gradient, first_moment, second_moment;
};

}  // namespace fathom::train
