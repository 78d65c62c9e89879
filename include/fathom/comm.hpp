// The front door of the room of how things move between ranks: collectives, the communicators of threads, what watches
// them.
#pragma once

#include <fathom/comm/all_gather.hpp>            // IWYU pragma: export
#include <fathom/comm/all_reduce.hpp>            // IWYU pragma: export
#include <fathom/comm/all_to_all.hpp>            // IWYU pragma: export
#include <fathom/comm/barrier.hpp>               // IWYU pragma: export
#include <fathom/comm/broadcast.hpp>             // IWYU pragma: export
#include <fathom/comm/communicator.hpp>          // IWYU pragma: export
#include <fathom/comm/element.hpp>               // IWYU pragma: export
#include <fathom/comm/exchange.hpp>              // IWYU pragma: export
#include <fathom/comm/faulty.hpp>                // IWYU pragma: export
#include <fathom/comm/flight_recorder.hpp>       // IWYU pragma: export
#include <fathom/comm/link.hpp>                  // IWYU pragma: export
#include <fathom/comm/mesh_links.hpp>            // IWYU pragma: export
#include <fathom/comm/redistribute.hpp>          // IWYU pragma: export
#include <fathom/comm/reduce_scatter.hpp>        // IWYU pragma: export
#include <fathom/comm/request.hpp>               // IWYU pragma: export
#include <fathom/comm/threads/communicator.hpp>  // IWYU pragma: export
#include <fathom/comm/threads/group.hpp>         // IWYU pragma: export
#include <fathom/comm/threads/run.hpp>           // IWYU pragma: export
#include <fathom/comm/watchdog.hpp>              // IWYU pragma: export
#include <fathom/comm/world.hpp>                 // IWYU pragma: export
