// The page that explains the architecture: the rooms of the library in the order in which data flows through them.
#pragma once

// Number formats, errors, random numbers that depend on an index alone, files.
#include <fathom/core.hpp>
// What flows: matrices with named axes, and the arena that all memory of a rank is carved from.
#include <fathom/tensor.hpp>
// Where it lives: the mesh of ranks, and the placements of a parameter.
#include <fathom/parallel.hpp>
// Who executes: workers and a queue.
#include <fathom/device.hpp>
// How it moves between ranks.
#include <fathom/comm.hpp>
// What one rank computes: one folder an operation, forward beside backward.
#include <fathom/ops.hpp>
// How weights move: AdamW, clipping, schedules.
#include <fathom/optim.hpp>
// Layers, which know how they are kept, deferred and recomputed.
#include <fathom/nn.hpp>
// The DeepSeek families, described in words; checkpoints under the names of others.
#include <fathom/models.hpp>
// A training step as one description, lowered to a plan before anything runs.
#include <fathom/recipe.hpp>
// How tokens become batches: tokenizer, corpora, loader.
#include <fathom/data.hpp>
// How a run survives: safetensors, and saves that are whole or not there.
#include <fathom/checkpoint.hpp>
// What a recipe will cost.
#include <fathom/cost.hpp>
// What people watch.
#include <fathom/observe.hpp>
// When each thing happens: engine, runs, generation, launching.
#include <fathom/train.hpp>
