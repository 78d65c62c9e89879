// Products with weights, grouped products for experts, biases, and their gradients.
#pragma once

#include <fathom/ops/product/bias.hpp>
#include <fathom/ops/product/gemm.hpp>
#include <fathom/ops/product/grouped.hpp>
#include <fathom/ops/product/host.hpp>
