// The front door of copies and sums, so that a layer includes the operation and not the machine it runs on.
#pragma once

#include <fathom/ops/elementwise/host.hpp>  // IWYU pragma: export
