#pragma once

// Stands in for what a .cu file takes from nvcc; a C++ compiler includes it before everything else.

#include <cuda_runtime_api.h>
// With its overloads in the global namespace, as nvcc has them.
#include <math.h>

#include <typeinfo>

#include "engine/emulator/block.h"
#include "engine/emulator/stream.h"
#include "engine/emulator/trace.h"

#undef __global__
#undef __device__
#undef __shared__
#undef __launch_bounds__
#define __global__
#define __device__
// The threads of a block are fibers of one thread, and blocks follow one another.
#define __shared__ static thread_local
#define __launch_bounds__(...)

#define threadIdx (::rematch::emulator::place.thread)
#define blockIdx (::rematch::emulator::place.block)
#define blockDim (::rematch::emulator::place.block_size)
#define gridDim (::rematch::emulator::place.grid_size)

inline void __syncthreads() { rematch::emulator::sync_threads(); }
inline void __syncwarp(unsigned mask = 0xffffffffU) { rematch::emulator::sync_warp(mask); }

namespace rematch::emulator {

inline unsigned lane() { return place.thread.x % 32; }

template <typename T>
T exchanged(unsigned mask, unsigned source, T value) {
  T theirs;
  exchange(mask, source, &value, &theirs, sizeof value);
  return theirs;
}

}  // namespace rematch::emulator

// A warp is cut into segments of `width` lanes; no lane reads beyond the end of its segment.

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const auto w = static_cast<unsigned>(width);
  const unsigned mine = rematch::emulator::lane();
  return rematch::emulator::exchanged(mask, mine / w * w + static_cast<unsigned>(source) % w,
                                      value);
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32) {
  const auto w = static_cast<unsigned>(width);
  const unsigned mine = rematch::emulator::lane();
  const unsigned from = mine % w + distance < w ? mine + distance : mine;
  return rematch::emulator::exchanged(mask, from, value);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int turned, int width = 32) {
  const auto w = static_cast<unsigned>(width);
  const unsigned mine = rematch::emulator::lane();
  const unsigned other = mine ^ static_cast<unsigned>(turned);
  return rematch::emulator::exchanged(mask, other < mine / w * w + w ? other : mine, value);
}

namespace rematch::emulator {

/// kernel<<<blocks, threads, shared, stream>>>(...), as the build rewrites it: `body` calls the
/// kernel with arguments that it holds by value, and `arguments` returns these.
template <typename Body, typename Arguments>
void launch(unsigned blocks, int threads, int shared, cudaStream_t stream, Body body,
            Arguments arguments) {
  if (blocks == 0 || threads <= 0 || threads > 1024) return refuse(cudaErrorInvalidConfiguration);
  count(Asked::kernel);
  const auto size = static_cast<unsigned>(threads);
  // The name tells the function object of a generic kernel as well.
  if (!is_traced()) {
    return launch_kernel(stream, __PRETTY_FUNCTION__,
                         [blocks, size, body] { run_grid(blocks, size, body); });
  }
  launch_kernel(stream, __PRETTY_FUNCTION__,
                [made = Launch{blocks, size, static_cast<unsigned>(shared), arguments()}, body] {
                  run_traced(made, body, [&] { run_grid(made.blocks, made.threads, body); });
                });
}

}  // namespace rematch::emulator
