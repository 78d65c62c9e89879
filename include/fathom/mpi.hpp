// The door for programs whose ranks are processes: what needs MPI's header and library, and is in no other door.
#pragma once

#include <fathom/comm/mpi/communicator.hpp>  // IWYU pragma: export
#include <fathom/comm/mpi/environment.hpp>   // IWYU pragma: export
#include <fathom/comm/mpi/run.hpp>           // IWYU pragma: export
#include <fathom/train/launch.hpp>

namespace fathom::detail {

/// `launch` runs ranks as processes from here on.
inline const bool launches_over_mpi = [] {
    run_over_mpi = [](const rank_body& body, const comm::watchdog& limit) {
        comm::mpi::run(
            [&](comm::mpi::communicator& all) {
                body.call(body.of, comm::link{all}, comm::mpi::environment::neighbours());
            },
            limit);
    };
    return true;
}();

}  // namespace fathom::detail
