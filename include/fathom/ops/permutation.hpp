// Tokens to experts and back.
#pragma once

#include <fathom/ops/permutation/host.hpp>
