#include "engine/kernels/delayed_scaling.h"

#include "engine/cuda/runtime/launch.h"
#include "engine/math/delayed_scaling.h"

namespace rematch::cuda {

namespace {

template <typename T>
struct DivideBy {
  const T* scale;
  __device__ void operator()(std::int64_t /*i*/, T x, T& y) const { y = x / *scale; }
};

template <typename T>
struct RoundToFloat8 {
  const T* history;
  __device__ void operator()(std::int64_t /*i*/, T x, T& y) const {
    y = math::through_float8(x, math::float8_scale(history));
  }
};

template <typename T>
struct Average {
  T* average;
  __device__ void operator()(T top) const { *average = math::moved_average(*average, top); }
};

template <typename T>
struct Remember {
  T* history;
  __device__ void operator()(T top) const { math::remember(history, top); }
};

constexpr int kBlock = 1024;

/// end(the largest |x|), in one block.
template <typename T, typename End>
__global__ void __launch_bounds__(kBlock) magnitude_kernel(std::int64_t n, const T* x, End end) {
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
  end(top);
}

template <typename T, typename End>
void find_magnitude(const char* kernel, std::int64_t n, const T* x, const End& end) {
  magnitude_kernel<<<1, kBlock, 0, stream()>>>(n, x, end);
  check_launch(kernel);
}

}  // namespace

template <typename T>
void divide_by(std::int64_t n, const T* x, const T* scale, T* y) {
  visit<kVector<T>>("divide_by", n, DivideBy<T>{scale}, In<T>{x}, Out<T>{y});
}

template <typename T>
void average_magnitude(std::int64_t n, const T* x, T* average) {
  find_magnitude("average_magnitude", n, x, Average<T>{average});
}

template <typename T>
void round_to_float8(std::int64_t n, const T* x, const T* history, T* y) {
  visit<kVector<T>>("round_to_float8", n, RoundToFloat8<T>{history}, In<T>{x}, Out<T>{y});
}

template <typename T>
void remember_magnitude(std::int64_t n, const T* x, T* history) {
  find_magnitude("remember_magnitude", n, x, Remember<T>{history});
}

REMATCH_DELAYED_SCALING_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
