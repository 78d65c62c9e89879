// The door to rotary position embedding: its settings, its tables and the rotation itself.
#pragma once

#include <fathom/ops/rotary/rope_facts.hpp>
#include <fathom/ops/rotary/rope_table.hpp>
#include <fathom/ops/rotary/rotate.hpp>
