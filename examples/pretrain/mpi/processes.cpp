// Lets an MPI launcher start the trainer's ranks as processes; compiled where there is MPI.
#include <fathom/mpi.hpp>
