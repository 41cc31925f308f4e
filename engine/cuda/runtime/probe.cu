#include "engine/cuda/runtime/probe.h"

namespace rematch::cuda {
namespace {

__global__ void nothing() {}

}  // namespace

cudaError_t try_kernel() {
  nothing<<<1, 1, 0, nullptr>>>();
  return cudaGetLastError();
}

}  // namespace rematch::cuda
