#pragma once

/// Marks a function for host and device under nvcc; empty elsewhere.
#ifdef __CUDACC__
#define REMATCH_HD __host__ __device__
#else
#define REMATCH_HD
#endif

/// Before a loop that carries one sum: device code then has eight loads under way, not one. The
/// order of the sum stays.
#ifdef __CUDA_ARCH__
#define REMATCH_UNROLL _Pragma("unroll 8")
#else
#define REMATCH_UNROLL
#endif
