// The front door of the embedding, so that a layer includes the operation and not the machine it runs on.
#pragma once

#include <fathom/ops/embedding/host.hpp>  // IWYU pragma: export
