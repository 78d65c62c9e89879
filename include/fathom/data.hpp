// The front door of the room in which tokens become batches: corpora and the loader. What turns text into tokens brings
// a JSON reader and PCRE2 along, which most programs do without; it is included by name: fathom/data/tokenizer.hpp,
// fathom/data/tokenizer_trainer.hpp, fathom/data/make_corpus.hpp.
#pragma once

#include "fathom/data/batch.hpp"          // IWYU pragma: export
#include "fathom/data/corpus.hpp"         // IWYU pragma: export
#include "fathom/data/corpus_writer.hpp"  // IWYU pragma: export
#include "fathom/data/loader.hpp"         // IWYU pragma: export
