#include "engine/cuda/delayed_scaling.h"

#include "engine/cuda/launch.h"
#include "engine/math/delayed_scaling.h"

namespace rematch::cuda {

namespace {

template <typename T>
struct DivideBy {
  const T* scale;
  __device__ void operator()(std::int64_t /*i*/, T x, T& y) const { y = x / *scale; }
};

constexpr int kBlock = 1024;

template <typename T>
__global__ void __launch_bounds__(kBlock)
    average_magnitude_kernel(std::int64_t n, const T* x, T* average) {
  __shared__ T tops[kBlock / 32];
  T top = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kBlock) top = math::larger_magnitude(top, x[i]);
#pragma unroll
  for (int half = 16; half > 0; half /= 2) {
    top = math::larger_magnitude(top, __shfl_xor_sync(0xffffffffU, top, half));
  }
  if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kBlock / 32; ++w) top = math::larger_magnitude(top, tops[w]);
  *average = math::moved_average(*average, top);
}

}  // namespace

template <typename T>
void divide_by(std::int64_t n, const T* x, const T* scale, T* y) {
  visit<kVector<T>>("divide_by", n, DivideBy<T>{scale}, In<T>{x}, Out<T>{y});
}

template <typename T>
void average_magnitude(std::int64_t n, const T* x, T* average) {
  average_magnitude_kernel<<<1, kBlock, 0, stream()>>>(n, x, average);
  check_launch("average_magnitude");
}

#define REMATCH_INSTANTIATE(T)                                   \
  template void divide_by(std::int64_t, const T*, const T*, T*); \
  template void average_magnitude(std::int64_t, const T*, T*);
REMATCH_INSTANTIATE(float)
REMATCH_INSTANTIATE(double)
#undef REMATCH_INSTANTIATE

}  // namespace rematch::cuda
