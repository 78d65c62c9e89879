// The front door of the room that everything stands on: number formats, errors, random numbers, files.
#pragma once

#include <fathom/core/bf16.hpp>            // IWYU pragma: export
#include <fathom/core/bytes.hpp>           // IWYU pragma: export
#include <fathom/core/e4m3.hpp>            // IWYU pragma: export
#include <fathom/core/error.hpp>           // IWYU pragma: export
#include <fathom/core/file.hpp>            // IWYU pragma: export
#include <fathom/core/function_ref.hpp>    // IWYU pragma: export
#include <fathom/core/json.hpp>            // IWYU pragma: export
#include <fathom/core/number.hpp>          // IWYU pragma: export
#include <fathom/core/random_stream.hpp>   // IWYU pragma: export
#include <fathom/core/seconds_now.hpp>     // IWYU pragma: export
#include <fathom/core/shared_library.hpp>  // IWYU pragma: export
#include <fathom/core/text_of_bytes.hpp>   // IWYU pragma: export
