#include "engine/cuda/runtime/staging.h"

#include <cstring>

#include "engine/cuda/runtime/context.h"

namespace rematch::cuda {

namespace {

constexpr std::size_t kHalf = 4 * kMostStaged;
/// Copies of neighbours do not share a cache line.
constexpr std::size_t kGrain = 256;

/// Waits for what was queued before the event, and counts that as a wait only if there is need.
void wait_until(cudaEvent_t event) {
  const cudaError_t passed = cudaEventQuery(event);
  if (passed != cudaErrorNotReady) return check(passed, "cudaEventQuery after copies");
  (void)cudaGetLastError();
  ++context().operations.waits;
  check(cudaEventSynchronize(event), "cudaEventSynchronize with earlier copies");
}

bool make(Context::Staging& s) {
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, 2 * kHalf);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return false;
  }
  check(status, "cudaMallocHost for copies to the device");
  for (cudaEvent_t& event : s.passed) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  s.data = static_cast<std::byte*>(data);
  return true;
}

}  // namespace

const void* staged(const void* from, std::size_t bytes) {
  Context::Staging& s = context().staging;
  if (s.data == nullptr && !make(s)) return nullptr;
  if (s.used + bytes > kHalf) {
    // The other half is free once the copies have run that were queued when it was left.
    check(cudaEventRecord(s.passed[s.half], stream()), "cudaEventRecord after copies");
    s.half = 1 - s.half;
    s.used = 0;
    wait_until(s.passed[s.half]);
  }
  std::byte* const place = s.data + s.half * kHalf + s.used;
  std::memcpy(place, from, bytes);
  s.used += (bytes + kGrain - 1) / kGrain * kGrain;
  return place;
}

}  // namespace rematch::cuda
