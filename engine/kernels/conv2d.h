#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"

namespace rematch {

/// A 2d cross-correlation (torch.nn.functional.conv2d, groups = 1, dilation = 1) of x[n,c,h,w] with
/// weights [out_c,c,kh,kw] under zero padding. Kernels need out_h() >= 1 and out_w() >= 1.
struct Conv2dShape {
  std::int64_t n = 0;
  std::int64_t c = 0;
  std::int64_t h = 0;
  std::int64_t w = 0;
  std::int64_t out_c = 0;
  std::int64_t kh = 1;
  std::int64_t kw = 1;
  std::int64_t stride_h = 1;
  std::int64_t stride_w = 1;
  std::int64_t pad_h = 0;
  std::int64_t pad_w = 0;

  [[nodiscard]] constexpr std::int64_t out_h() const { return (h + 2 * pad_h - kh) / stride_h + 1; }
  [[nodiscard]] constexpr std::int64_t out_w() const { return (w + 2 * pad_w - kw) / stride_w + 1; }
};

// The device runs convolutions of at most direct_products() products (cuda/runtime/device.h) on the
// engine's own kernels (cuda/kernels/conv2d_direct.h) and larger ones on cuDNN, with their bias
// where it can add one on the way, unless it has no deterministic engine for them, as may be for
// float64 (operations() counts those). The choice, and cuDNN's plan, is made once per shape, type,
// precision and alignment (16 bytes or less) for the whole process, so the same call has the same
// bits every time. cuDNN's engines that are not deterministic are never used, nor FFT, nor
// Winograd's transforms beyond F(2x2, 3x3), whose errors grow with the tile.
//
// The device's error against the exact result, for operands in [-1, 1] and `terms` products a sum
// (y: c kh kw, gx: out_c kh kw, gw: n out_h out_w):
//   own kernels   terms u_64 * terms + u_T * terms: sums are in double, and rounded once;
//   cuDNN         terms (terms + 110) u_T. A direct sum is within terms^2 u_T. F(2x2, 3x3) adds
//                 channels = terms / 9 products of transformed operands, each at most 4 and 2.25,
//                 in 16 places, and takes up to 9 of those sums: at most 81 channels in magnitude,
//                 with channels + 12 roundings, that is 9 terms (terms / 9 + 12) u_T.
// A bias adds one more rounding. The products of bfloat16 operands are exact in float32, sums are
// float32's, Winograd is not used, and results are rounded once more, to bfloat16. Under
// Precision::tf32 each float32 product carries 2^-10 more. The orders of sums below are the CPU's.

/// The number of elements of scratch that any one conv2d kernel needs for this shape. 0 on the
/// device, where cuDNN's scratch is the thread's workspace (cuda/runtime/context.h) and kernels
/// read no `scratch`, which may be null.
REMATCH_DECLARE_PLAIN(std::int64_t conv2d_scratch_elements(const Conv2dShape& shape));

/// y[n,out_c,out_h,out_w] = x * w + b; `b` may be null. Each element is one fma chain that starts
/// from the bias and runs over (c, kh, kw) in row-major order, padding included as zeros.
REMATCH_DECLARE(void conv2d_forward(const Conv2dShape& shape, const T* x, const T* w, const T* b,
                                    T* scratch, T* y));

/// gx[n,c,h,w]: the gradient of x. Zeros stand in for output positions that do not exist, so a
/// non-finite weight may turn more of gx into NaN than the formula does.
REMATCH_DECLARE(void conv2d_grad_input(const Conv2dShape& shape, const T* gy, const T* w,
                                       T* scratch, T* gx));

/// gw[out_c,c,kh,kw]: the gradient of w. Each element is a sum, in ascending order from zero, of
/// fma chains over up to 128 outputs each, in whole rows of an image (at least one); padding counts
/// as zeros, so a non-finite gy may spread as NaN.
REMATCH_DECLARE(void conv2d_grad_weight(const Conv2dShape& shape, const T* gy, const T* x,
                                        T* scratch, T* gw));

/// gb[out_c]: gy summed over images and positions: as a LaneSum with one run per image, or for
/// images of one pixel as column_sums in double (engine/cpu/reduce.h), on the device as well.
REMATCH_DECLARE(void conv2d_grad_bias(const Conv2dShape& shape, const T* gy, T* gb));

#define REMATCH_CONV2D_KERNELS(K) \
  K(conv2d_forward);              \
  K(conv2d_grad_input);           \
  K(conv2d_grad_weight)

}  // namespace rematch
