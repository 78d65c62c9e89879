// The front door of cross-entropy, so that a layer includes the operation and not the machine it runs on.
#pragma once

#include <fathom/ops/cross_entropy/host.hpp>   // IWYU pragma: export
#include <fathom/ops/cross_entropy/split.hpp>  // IWYU pragma: export
