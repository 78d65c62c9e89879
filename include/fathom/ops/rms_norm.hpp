// The front door of RMSNorm, so that a layer includes the operation and not the machine it runs on.
#pragma once

#include <fathom/ops/rms_norm/host.hpp>  // IWYU pragma: export
