// The words that nvcc wants in kernels and other compilers do not know; only macros can stand for them.
#pragma once

#if defined(__CUDACC__)
/// Before functions that kernels call.
#define FATHOM_DEVICE __device__
/// Before loops over registers: an array is in registers only where every index is a constant.
#define FATHOM_UNROLL _Pragma("unroll")
#else
#define FATHOM_DEVICE
#define FATHOM_UNROLL
#endif
