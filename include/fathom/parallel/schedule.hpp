// Pipeline schedules as constant tables: words, their steps, exchanges, proofs and figures.
#pragma once

#include <fathom/parallel/schedule/at.hpp>        // IWYU pragma: export
#include <fathom/parallel/schedule/built.hpp>     // IWYU pragma: export
#include <fathom/parallel/schedule/costs.hpp>     // IWYU pragma: export
#include <fathom/parallel/schedule/explain.hpp>   // IWYU pragma: export
#include <fathom/parallel/schedule/lower.hpp>     // IWYU pragma: export
#include <fathom/parallel/schedule/own.hpp>       // IWYU pragma: export
#include <fathom/parallel/schedule/proof.hpp>     // IWYU pragma: export
#include <fathom/parallel/schedule/prove.hpp>     // IWYU pragma: export
#include <fathom/parallel/schedule/shape.hpp>     // IWYU pragma: export
#include <fathom/parallel/schedule/step.hpp>      // IWYU pragma: export
#include <fathom/parallel/schedule/table.hpp>     // IWYU pragma: export
#include <fathom/parallel/schedule/timeline.hpp>  // IWYU pragma: export
#include <fathom/parallel/schedule/words.hpp>     // IWYU pragma: export
