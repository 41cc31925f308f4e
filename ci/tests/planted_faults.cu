// One fault for each tool of compute-sanitizer: that a tool finds nothing else says something only
// if it sees these.
//   gpu_planted out-of-bounds|race|uninitialised|barrier
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

namespace rematch {

constexpr int kThreads = 64;

/// Writes behind the end.
__global__ void out_of_bounds(float* x, int size) { x[size + threadIdx.x] = 1; }

/// Reads what another warp writes, without a barrier between.
__global__ void race(float* x) {
  __shared__ float shared[kThreads];
  shared[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

/// Reads what nothing wrote.
__global__ void uninitialised(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }

/// Some threads of a warp do not come to the barrier.
__global__ void barrier(float* x) {
  if (threadIdx.x % 32 < 20) __syncthreads();
  x[threadIdx.x] = 1;
}

}  // namespace rematch

int main(int count, char** arguments) {
  using namespace rematch;
  const char* fault = count == 2 ? arguments[1] : "";
  float* x = nullptr;
  float* y = nullptr;
  if (cudaMalloc(&x, kThreads * sizeof(float)) != cudaSuccess ||
      cudaMalloc(&y, kThreads * sizeof(float)) != cudaSuccess) {
    std::fprintf(stderr, "gpu_planted: no memory of a CUDA device was found\n");
    return 4;
  }
  if (std::strcmp(fault, "uninitialised") != 0) cudaMemset(x, 0, kThreads * sizeof(float));
  if (std::strcmp(fault, "out-of-bounds") == 0) {
    out_of_bounds<<<1, kThreads>>>(x, kThreads);
  } else if (std::strcmp(fault, "race") == 0) {
    race<<<1, kThreads>>>(x);
  } else if (std::strcmp(fault, "uninitialised") == 0) {
    uninitialised<<<1, kThreads>>>(x, y);
  } else if (std::strcmp(fault, "barrier") == 0) {
    barrier<<<1, kThreads>>>(x);
  } else {
    std::fprintf(stderr,
                 "gpu_planted: expected out-of-bounds, race, uninitialised or barrier, got '%s'\n",
                 fault);
    return 2;
  }
  std::printf("%s: %s\n", fault, cudaGetErrorString(cudaDeviceSynchronize()));
  return 0;
}
