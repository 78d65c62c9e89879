// Losses that keep experts equally busy.
#pragma once

#include <fathom/ops/balance/host.hpp>
