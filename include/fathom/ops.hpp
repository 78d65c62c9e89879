// The front door of the room of what one rank computes, an operation a file.
#pragma once

#include <fathom/ops/attention.hpp>         // IWYU pragma: export
#include <fathom/ops/balance.hpp>           // IWYU pragma: export
#include <fathom/ops/cross_entropy.hpp>     // IWYU pragma: export
#include <fathom/ops/decode_attention.hpp>  // IWYU pragma: export
#include <fathom/ops/elementwise.hpp>       // IWYU pragma: export
#include <fathom/ops/embedding.hpp>         // IWYU pragma: export
#include <fathom/ops/permutation.hpp>       // IWYU pragma: export
#include <fathom/ops/product.hpp>           // IWYU pragma: export
#include <fathom/ops/quantise.hpp>          // IWYU pragma: export
#include <fathom/ops/rms_norm.hpp>          // IWYU pragma: export
#include <fathom/ops/rotary.hpp>            // IWYU pragma: export
#include <fathom/ops/router.hpp>            // IWYU pragma: export
#include <fathom/ops/swiglu.hpp>            // IWYU pragma: export
