#pragma once

/// Marks a function for host and device under nvcc; empty elsewhere.
#ifdef __CUDACC__
#define REMATCH_HD __host__ __device__
#else
#define REMATCH_HD
#endif
