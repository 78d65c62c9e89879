// The front door of the room in which tokens become batches: tokenizer, corpora, loader.
#pragma once

#include "fathom/data/batch.hpp"              // IWYU pragma: export
#include "fathom/data/corpus.hpp"             // IWYU pragma: export
#include "fathom/data/corpus_writer.hpp"      // IWYU pragma: export
#include "fathom/data/loader.hpp"             // IWYU pragma: export
#include "fathom/data/make_corpus.hpp"        // IWYU pragma: export
#include "fathom/data/tokenizer.hpp"          // IWYU pragma: export
#include "fathom/data/tokenizer_trainer.hpp"  // IWYU pragma: export
