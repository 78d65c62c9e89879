// The door for programs whose ranks are GPUs: it needs neither CUDA's nor NCCL's headers, and their libraries only when
// they are used; it is in no other door.
#pragma once

#include <fathom/comm/nccl/bootstrap.hpp>     // IWYU pragma: export
#include <fathom/comm/nccl/communicator.hpp>  // IWYU pragma: export
#include <fathom/comm/nccl/library.hpp>       // IWYU pragma: export
#include <fathom/comm/nccl/settings.hpp>      // IWYU pragma: export
