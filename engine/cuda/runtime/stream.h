#pragma once

// Kernels need this of the thread that launches them. The header is light, because nvcc
// reads all that a .cu file includes four times.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace rematch::cuda {

/// The calling thread's stream, for work that is queued at once: what was deferred is queued first.
/// It is non-blocking: it does not wait for the default stream.
cudaStream_t stream();

/// Throws when the kernel that was just launched could not start, and counts it. Errors while it
/// runs show in a later call.
void check_launch(const char* kernel);

/// Counts a kernel that is launched without check_launch().
void count_kernel();

/// Whose scratch: each has a block of its own, so one may call another.
enum class Scratch : std::uint8_t { kernels, cublaslt, cudnn, uploads };
inline constexpr int kScratchCount = 4;

/// At least `bytes` of device memory, 256-byte aligned, for work on stream() until the next call
/// for the same user; its content is undefined. Nothing waits for it. It only grows, and a block
/// that was outgrown is kept, for a captured graph may hold its address; sizes at least double, so
/// what is kept is less than what is in use. Throws OutOfMemory, or DeviceError when it would have
/// to grow during a capture.
void* workspace(std::size_t bytes, Scratch user = Scratch::kernels);

class Deferred;
/// The small writes that wait for stream() to be asked for.
Deferred& deferred();

/// Where a captured step finds, when it runs, what its draws from a stream add to their offset;
/// nullptr outside of a capture. Throws DeviceError for a stream that captured steps cannot draw
/// from.
const std::uint64_t* draw_advance(std::uint64_t subsequence);

}  // namespace rematch::cuda
