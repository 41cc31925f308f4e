#pragma once

#include <cstdint>

namespace rematch::cpu {

/// A 2d pooling of x[n,c,h,w] with floor output sizes (torch's ceil_mode = false). As in torch, the
/// padding must be at most half the kernel, so every window meets the image.
struct Pool2dShape {
  std::int64_t n = 0;
  std::int64_t c = 0;
  std::int64_t h = 0;
  std::int64_t w = 0;
  std::int64_t kh = 1;
  std::int64_t kw = 1;
  std::int64_t stride_h = 1;
  std::int64_t stride_w = 1;
  std::int64_t pad_h = 0;
  std::int64_t pad_w = 0;

  [[nodiscard]] constexpr std::int64_t out_h() const { return (h + 2 * pad_h - kh) / stride_h + 1; }
  [[nodiscard]] constexpr std::int64_t out_w() const { return (w + 2 * pad_w - kw) / stride_w + 1; }
};

/// y[n,c,out_h,out_w] = the window maxima; indices (same shape) = where in the h*w plane each was
/// found. The first maximum in row-major order wins; a NaN beats every number and the last NaN of a
/// window is the one reported, as in torch.
template <typename T>
void max_pool2d_forward(const Pool2dShape& shape, const T* x, T* y, std::int32_t* indices);

/// gx[n,c,h,w]: gy added at the recorded positions in row-major output order; fully overwritten.
template <typename T>
void max_pool2d_backward(const Pool2dShape& shape, const T* gy, const std::int32_t* indices, T* gx);

/// y[n,c,out_h,out_w] = window sums (row-major order) divided by kh*kw, padding counted as zeros.
template <typename T>
void avg_pool2d_forward(const Pool2dShape& shape, const T* x, T* y);

/// gx[n,c,h,w]: gy / (kh*kw) added over the windows in row-major output order; fully overwritten.
template <typename T>
void avg_pool2d_backward(const Pool2dShape& shape, const T* gy, T* gx);

}  // namespace rematch::cpu
