// Buffers of any length as MPI messages, whose counts are an int, and MPI's errors as ours.
#pragma once

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1  // the C++ bindings that MPI removed: 15,000 lines
#endif
#include <mpi.h>

#include <algorithm>
#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>
#include <string_view>
#include <vector>

namespace fathom::comm::mpi::detail {

/// Throws what MPI says of a call that failed.
inline void check(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    fail(call, ": ", std::string_view{text, static_cast<std::size_t>(length)});
}

/// The messages between this rank and one other that an operation waits for.
struct transfer {
    MPI_Request handle;
    integer peer;
    bool receives;
};

/// The most bytes of one message: below MPI's int.
inline constexpr integer most_bytes = integer{1} << 30;

inline void send(std::vector<transfer>& into, MPI_Comm comm, integer peer, int tag, const void* data, integer bytes) {
    for (integer at = 0; at < bytes; at += most_bytes) {
        transfer& made = into.emplace_back(transfer{MPI_REQUEST_NULL, peer, false});
        check(MPI_Isend(static_cast<const char*>(data) + at, static_cast<int>(std::min(bytes - at, most_bytes)),
                        MPI_BYTE, static_cast<int>(peer), tag, comm, &made.handle),
              "MPI_Isend");
    }
}
inline void receive(std::vector<transfer>& into, MPI_Comm comm, integer peer, int tag, void* data, integer bytes) {
    for (integer at = 0; at < bytes; at += most_bytes) {
        transfer& made = into.emplace_back(transfer{MPI_REQUEST_NULL, peer, true});
        check(MPI_Irecv(static_cast<char*>(data) + at, static_cast<int>(std::min(bytes - at, most_bytes)), MPI_BYTE,
                        static_cast<int>(peer), tag, comm, &made.handle),
              "MPI_Irecv");
    }
}

/// Forgets the transfers that are done; true when none is left.
inline bool finished(std::vector<transfer>& under_way) {
    std::erase_if(under_way, [](transfer& each) {
        int done = 0;
        check(MPI_Test(&each.handle, &done, MPI_STATUS_IGNORE), "MPI_Test");
        return done != 0;
    });
    return under_way.empty();
}

}  // namespace fathom::comm::mpi::detail
