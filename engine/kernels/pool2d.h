#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"

namespace rematch {

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

// On the device each output meets its window, and each input its windows, in the same row-major
// order: backward gathers, one thread an input, and adds nothing atomically. A sum over k terms is
// within k u_T * sum |terms| of the exact one.

/// y[n,c,out_h,out_w] = the window maxima; indices (same shape) = where in the h*w plane each was
/// found. The first maximum in row-major order wins; a NaN beats every number and the last NaN of a
/// window is the one reported, as in torch.
REMATCH_DECLARE(void max_pool2d_forward(const Pool2dShape& shape, const T* x, T* y,
                                        std::int32_t* indices));

/// gx[n,c,h,w]: gy added at the recorded positions in row-major output order; fully overwritten.
/// `indices` must be those of forward.
REMATCH_DECLARE(void max_pool2d_backward(const Pool2dShape& shape, const T* gy,
                                         const std::int32_t* indices, T* gx));

/// y[n,c,out_h,out_w] = window sums (row-major order) divided by kh*kw, padding counted as zeros.
REMATCH_DECLARE(void avg_pool2d_forward(const Pool2dShape& shape, const T* x, T* y));

/// gx[n,c,h,w]: gy / (kh*kw) added over the windows in row-major output order; fully overwritten.
REMATCH_DECLARE(void avg_pool2d_backward(const Pool2dShape& shape, const T* gy, T* gx));

#define REMATCH_POOL2D_KERNELS(K) \
  K(max_pool2d_forward);          \
  K(max_pool2d_backward);         \
  K(avg_pool2d_forward);          \
  K(avg_pool2d_backward)

}  // namespace rematch
