// The front door of quantisation, so that a layer includes the operation and not the machine it runs on.
#pragma once

#include <fathom/ops/quantise/host.hpp>  // IWYU pragma: export
