// The front door of the room of whole models: words, families, checkpoints' names.
#pragma once

#include <fathom/models/composed.hpp>      // IWYU pragma: export
#include <fathom/models/families.hpp>      // IWYU pragma: export
#include <fathom/models/hugging_face.hpp>  // IWYU pragma: export
#include <fathom/models/transformer.hpp>   // IWYU pragma: export
