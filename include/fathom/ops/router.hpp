// How tokens choose experts.
#pragma once

#include <fathom/ops/router/facts.hpp>
#include <fathom/ops/router/host.hpp>
