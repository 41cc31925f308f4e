#pragma once

// A context is all that a worker thread owns on the device. Everything goes to device 0
// (CUDA_VISIBLE_DEVICES chooses it) and to the thread's own stream, so threads never wait for
// others.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cuda/runtime/deferred.h"
#include "engine/cuda/runtime/device.h"
#include "engine/cuda/runtime/stream.h"

struct cublasLtContext;
struct cudnnContext;

namespace rematch::cuda {

/// Throws DeviceError for anything but success, and takes the error off CUDA's record; DeviceLost
/// after an error that breaks the device context.
void check(cudaError_t status, std::string_view what);

/// The error by which work that was queued before has lost the device; cudaSuccess while nothing is
/// known of one. Waits for nothing.
cudaError_t error_of_earlier_work();

/// Throws `text`, what a library says of a call that failed, with the error of CUDA that is behind
/// it, if there is one: DeviceLost or DeviceError, as check() does.
[[noreturn]] void fail_in_library(const std::string& text);

/// Bytes of the workspaces of all threads, with those that were outgrown.
std::int64_t workspace_bytes();

/// Whether stream() is being captured into a graph.
bool capturing();
/// Throws DeviceError when capturing: `what` has to happen before, in a run of the same work.
void forbid_capture(std::string_view what);

/// Random streams that a captured step may have.
inline constexpr std::size_t kDrawStreams = 16;

/// State of one thread at a time. A thread that ends leaves it, with its stream, handles, plans and
/// workspaces, to the next one that starts, after its last thread_local object is gone: work queued
/// by the old one stays in order.
struct Context {
  struct Block {
    void* data = nullptr;
    std::size_t bytes = 0;
  };

  cudaStream_t stream = nullptr;
  /// To be started before anything else is queued on `stream`.
  Deferred deferred;
  /// For copies beside the computation, and an event that makes one stream wait for the other; a
  /// wait stands for what was recorded when it was queued, so one event serves again and again.
  cudaStream_t copies = nullptr;
  cudaEvent_t order = nullptr;
  /// Copies that `stream` does not wait for yet, in their order on `copies`: the block of the
  /// device that each reads or writes, and an event after it.
  struct Copying {
    const void* block = nullptr;
    cudaEvent_t done = nullptr;
  };
  std::vector<Copying> copying;
  std::vector<cudaEvent_t> spare_events;
  std::array<Block, kScratchCount> scratch{};
  std::vector<void*> outgrown;
  /// Pinned memory that small copies to the device go through (engine/cuda/runtime/staging.h).
  struct Staging {
    std::byte* data = nullptr;
    std::size_t used = 0;
    std::size_t half = 0;
    std::array<cudaEvent_t, 2> passed{};
  } staging;
  /// Where a capture keeps what its copies from the host read; nullptr outside of one.
  std::vector<std::vector<std::byte>>* captured_sources = nullptr;
  std::array<std::int64_t, kBackendCount> calls{};
  /// But for kernels and products, which are in `calls`.
  Operations operations;
  std::int64_t direct_products = kDirectProducts;
  Precision precision = Precision::strict;
  /// On the device, by stream: what draws add to their offset when they run; nullptr outside of a
  /// capture (engine/cuda/runtime/graph.h).
  const std::uint64_t* draw_advances = nullptr;
  cublasLtContext* cublaslt = nullptr;
  cudnnContext* cudnn = nullptr;
  /// cuDNN's plans belong to a thread: not all of its engines may be run from two at a time.
  std::shared_ptr<void> convolution_plans;
};

/// The calling thread's; made at the first call. Throws DeviceError when there is no device.
Context& context();

inline void count_call(Backend backend) { ++context().calls[static_cast<std::size_t>(backend)]; }

// Fills, copies and waits are counted, so all go through these. `on` is one of the context's two
// streams.

cudaError_t fill_bytes(void* block, int value, std::int64_t bytes, cudaStream_t on);
cudaError_t copy_bytes(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind,
                       cudaStream_t on);
cudaError_t wait_for(cudaStream_t on);

}  // namespace rematch::cuda
