// The door for programs whose ranks are processes: what needs MPI's header and library, and is in no other door.
#pragma once

#include <fathom/comm/mpi/communicator.hpp>  // IWYU pragma: export
#include <fathom/comm/mpi/environment.hpp>   // IWYU pragma: export
#include <fathom/comm/mpi/run.hpp>           // IWYU pragma: export
