// The door to attention: causal, over documents, without ever holding the score matrix.
#pragma once

#include <fathom/ops/attention/attention_facts.hpp>
#include <fathom/ops/attention/attention_operands.hpp>
#include <fathom/ops/attention/backward.hpp>
#include <fathom/ops/attention/forward.hpp>
#include <fathom/ops/attention/place_run.hpp>
#include <fathom/ops/attention/scratch.hpp>
