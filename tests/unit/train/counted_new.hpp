// How often this program has asked for memory in C++.
#pragma once

namespace fathom::test {

/// Calls of operator new so far, in all threads. What libraries take from malloc is their own.
long allocations();

}  // namespace fathom::test
