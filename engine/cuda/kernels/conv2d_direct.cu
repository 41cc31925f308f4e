#include "engine/cuda/kernels/conv2d_direct.h"

#include "engine/cuda/runtime/launch.h"
#include "engine/kernels/declare.h"
#include "engine/math/bfloat16.h"

namespace rematch::cuda {

namespace {

/// A Conv2dShape in 32 bits, whose divisions are many times faster; element counts stay in 64.
struct Window {
  explicit Window(const Conv2dShape& s)
      : c(static_cast<int>(s.c)),
        h(static_cast<int>(s.h)),
        w(static_cast<int>(s.w)),
        out_c(static_cast<int>(s.out_c)),
        kh(static_cast<int>(s.kh)),
        kw(static_cast<int>(s.kw)),
        stride_h(static_cast<int>(s.stride_h)),
        stride_w(static_cast<int>(s.stride_w)),
        pad_h(static_cast<int>(s.pad_h)),
        pad_w(static_cast<int>(s.pad_w)),
        out_h(static_cast<int>(s.out_h())),
        out_w(static_cast<int>(s.out_w())),
        n(s.n) {}

  int c;
  int h;
  int w;
  int out_c;
  int kh;
  int kw;
  int stride_h;
  int stride_w;
  int pad_h;
  int pad_w;
  int out_h;
  int out_w;
  std::int64_t n;
};

/// Element `at` of an array [.., channels, rows, cols].
struct Place {
  std::int64_t image;
  int channel;
  int row;
  int col;
};
__device__ Place place(std::int64_t at, int channels, int rows, int cols) {
  const std::int64_t line = at / cols;
  const std::int64_t plane = line / rows;
  const std::int64_t image = plane / channels;
  return {image, static_cast<int>(plane - image * channels), static_cast<int>(line - plane * rows),
          static_cast<int>(at - line * cols)};
}

/// The type that a sum is rounded to first.
template <typename T>
struct Rounded {
  using type = T;
};
template <>
struct Rounded<math::BFloat16> {
  using type = float;
};
template <typename T>
__device__ typename Rounded<T>::type rounded(double sum) {
  return static_cast<typename Rounded<T>::type>(sum);
}

template <typename T>
__device__ double product(T a, T b, double sum) {
  return fma(static_cast<double>(a), static_cast<double>(b), sum);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(std::int64_t outputs, Window s, const T* x, const T* weight, const T* bias,
                   T* y) {
  for (std::int64_t at = global_thread(); at < outputs; at += global_threads()) {
    const Place out = place(at, s.out_c, s.out_h, s.out_w);
    const int row0 = out.row * s.stride_h - s.pad_h;
    const int col0 = out.col * s.stride_w - s.pad_w;
    const T* plane = x + out.image * s.c * s.h * s.w;
    const T* tap = weight + static_cast<std::int64_t>(out.channel) * s.c * s.kh * s.kw;
    double sum = 0;
    for (int c = 0; c < s.c; ++c, plane += static_cast<std::int64_t>(s.h) * s.w) {
      for (int ky = 0; ky < s.kh; ++ky) {
        const int row = row0 + ky;
        const bool inside = row >= 0 && row < s.h;
        for (int kx = 0; kx < s.kw; ++kx, ++tap) {
          const int col = col0 + kx;
          if (inside && col >= 0 && col < s.w) {
            sum = product(plane[static_cast<std::int64_t>(row) * s.w + col], *tap, sum);
          }
        }
      }
    }
    auto total = rounded<T>(sum);
    if (bias != nullptr) total += static_cast<decltype(total)>(bias[out.channel]);
    y[at] = static_cast<T>(total);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    grad_input_kernel(std::int64_t inputs, Window s, const T* gy, const T* weight, T* gx) {
  const std::int64_t out_plane = static_cast<std::int64_t>(s.out_h) * s.out_w;
  for (std::int64_t at = global_thread(); at < inputs; at += global_threads()) {
    const Place in = place(at, s.c, s.h, s.w);
    const T* plane = gy + in.image * s.out_c * out_plane;
    double sum = 0;
    for (int o = 0; o < s.out_c; ++o, plane += out_plane) {
      const T* taps = weight + (static_cast<std::int64_t>(o) * s.c + in.channel) * s.kh * s.kw;
      for (int ky = 0; ky < s.kh; ++ky) {
        // Tap ky of output row r reads input row r * stride - pad + ky.
        const int down = in.row + s.pad_h - ky;
        if (down < 0 || down % s.stride_h != 0 || down / s.stride_h >= s.out_h) continue;
        const T* line = plane + static_cast<std::int64_t>(down / s.stride_h) * s.out_w;
        for (int kx = 0; kx < s.kw; ++kx) {
          const int right = in.col + s.pad_w - kx;
          if (right < 0 || right % s.stride_w != 0 || right / s.stride_w >= s.out_w) continue;
          sum = product(line[right / s.stride_w], taps[ky * s.kw + kx], sum);
        }
      }
    }
    gx[at] = static_cast<T>(rounded<T>(sum));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    grad_weight_kernel(std::int64_t weights, Window s, const T* gy, const T* x, T* gw) {
  const std::int64_t out_plane = static_cast<std::int64_t>(s.out_h) * s.out_w;
  const std::int64_t positions = s.n * out_plane;
  const int lane = static_cast<int>(threadIdx.x % 32);
  // Whole warps stay in the loop together, so all lanes are there for the shuffles.
  for (std::int64_t at = global_thread() / 32; at < weights; at += global_threads() / 32) {
    const Place tap = place(at, s.c, s.kh, s.kw);
    const std::int64_t o = tap.image;
    double sum = 0;
    for (std::int64_t i = lane; i < positions; i += 32) {
      const Place out = place(i, 1, s.out_h, s.out_w);
      const int row = out.row * s.stride_h - s.pad_h + tap.row;
      const int col = out.col * s.stride_w - s.pad_w + tap.col;
      if (row < 0 || row >= s.h || col < 0 || col >= s.w) continue;
      const std::int64_t from = (out.image * s.c + tap.channel) * s.h + row;
      const std::int64_t position = static_cast<std::int64_t>(out.row) * s.out_w + out.col;
      sum = product(gy[(out.image * s.out_c + o) * out_plane + position], x[from * s.w + col], sum);
    }
#pragma unroll
    for (int half = 16; half > 0; half /= 2) sum += __shfl_down_sync(0xffffffffU, sum, half);
    if (lane == 0) gw[at] = static_cast<T>(rounded<T>(sum));
  }
}

}  // namespace

template <typename T>
void direct_forward(const Conv2dShape& s, const T* x, const T* w, const T* b, T* y) {
  const std::int64_t outputs = s.n * s.out_c * s.out_h() * s.out_w();
  if (outputs <= 0) return;
  forward_kernel<<<grid_for(outputs), kThreads, 0, stream()>>>(outputs, Window(s), x, w, b, y);
  check_launch("direct_forward");
}

template <typename T>
void direct_grad_input(const Conv2dShape& s, const T* gy, const T* w, T* gx) {
  const std::int64_t inputs = s.n * s.c * s.h * s.w;
  if (inputs <= 0) return;
  grad_input_kernel<<<grid_for(inputs), kThreads, 0, stream()>>>(inputs, Window(s), gy, w, gx);
  check_launch("direct_grad_input");
}

template <typename T>
void direct_grad_weight(const Conv2dShape& s, const T* gy, const T* x, T* gw) {
  const std::int64_t weights = s.out_c * s.c * s.kh * s.kw;
  if (weights <= 0) return;
  grad_weight_kernel<<<grid_for(weights, kThreads / 32), kThreads, 0, stream()>>>(
      weights, Window(s), gy, x, gw);
  check_launch("direct_grad_weight");
}

REMATCH_INSTANTIATE(direct_forward);
REMATCH_INSTANTIATE(direct_grad_input);
REMATCH_INSTANTIATE(direct_grad_weight);
REMATCH_INSTANTIATE_BFLOAT16(direct_forward);
REMATCH_INSTANTIATE_BFLOAT16(direct_grad_input);
REMATCH_INSTANTIATE_BFLOAT16(direct_grad_weight);

}  // namespace rematch::cuda
