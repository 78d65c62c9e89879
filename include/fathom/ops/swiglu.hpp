// SwiGLU, forward and backward.
#pragma once

#include <fathom/ops/swiglu/host.hpp>
