#pragma once

// The threads of a thread block as fibers of the calling thread: each runs until it waits for
// others, so a kernel that never waits is a plain loop over its threads.

#include <cstddef>
#include <cstdint>
#include <functional>

namespace rematch::emulator {

struct Extent {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

/// Where the running device thread is; what kernels know as threadIdx and so on.
struct Place {
  Extent thread{0, 0, 0};
  Extent block{0, 0, 0};
  Extent block_size;
  Extent grid_size;
};
inline thread_local constinit Place place{};

/// Runs `body` once for every thread of every block; blocks follow one another, and none relies on
/// the order. Threads take turns; with REMATCH_EMULATOR_ORDER=descending the last ones begin, and
/// warps that can go on run ahead of the others. Stricter than CUDA: all lanes of a mask have to be
/// there. A
/// kernel that CUDA leaves undefined ends the process with a sentence that says why: threads that
/// wait for one that has ended, a shuffle from a lane that takes no part in it.
void run_grid(unsigned blocks, unsigned threads, const std::function<void()>& body);

// For a thread that runs inside run_grid().

void sync_threads();
void sync_warp(unsigned mask);

/// Reads what lane `source` of the running thread's warp gave as `mine`; lanes of `mask` call it.
void exchange(unsigned mask, unsigned source, const void* mine, void* theirs, std::size_t bytes);

}  // namespace rematch::emulator
