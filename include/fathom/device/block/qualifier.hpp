// The one word that nvcc wants before every function of a kernel and other compilers do not know.
#pragma once

#if defined(__CUDACC__)
/// Before functions that kernels call. A macro, because no other construct of the language can add a word for one
/// compiler.
#define FATHOM_DEVICE __device__
#else
#define FATHOM_DEVICE
#endif
