#pragma once

#include <cstdint>

#include "engine/cpu/conv2d.h"

namespace rematch::cuda {

// engine/cpu/conv2d.h on the device: pointers are the device's, work goes to stream().
//
// Convolutions of at most direct_products() products (cuda/runtime/device.h) run on the engine's
// own kernels (conv2d_direct.h); larger ones on cuDNN, with their bias where it can add one on the
// way, unless it has no deterministic engine for them, as may be for float64 (operations() counts
// those). Which it is, and cuDNN's plan, is chosen once per shape, type, precision and alignment
// (16 bytes or less) for the whole process, so the same call has the same bits every time. cuDNN's
// engines that are not deterministic are never used, nor FFT, nor Winograd's transforms beyond
// F(2x2, 3x3), whose errors grow with the tile.
//
// Error against the exact result, for operands in [-1, 1] and `terms` products a sum (y: c kh kw,
// gx: out_c kh kw, gw: n out_h out_w):
//   own kernels   terms u_64 * terms + u_T * terms: sums are in double, and rounded once;
//   cuDNN         terms (terms + 110) u_T. A direct sum is within terms^2 u_T. F(2x2, 3x3) adds
//                 channels = terms / 9 products of transformed operands, each at most 4 and 2.25,
//                 in 16 places, and takes up to 9 of those sums: at most 81 channels in magnitude,
//                 with channels + 12 roundings, that is 9 terms (terms / 9 + 12) u_T.
// A bias adds one more rounding. Of bfloat16 operands products are exact in float32, sums are
// float32's, Winograd is not used, and results are rounded once more, to bfloat16. Under
// Precision::tf32 each float32 product carries 2^-10 more.

using cpu::Conv2dShape;

/// None: cuDNN's scratch is the thread's workspace (cuda/runtime/context.h), not a tensor's.
constexpr std::int64_t conv2d_scratch_elements(const Conv2dShape& /*shape*/) { return 0; }

/// y[n,out_c,out_h,out_w] = x * w + b; `b` may be null. `scratch` is not used, and may be null.
template <typename T>
void conv2d_forward(const Conv2dShape& shape, const T* x, const T* w, const T* b, T* scratch, T* y);

/// gx[n,c,h,w]: the gradient of x.
template <typename T>
void conv2d_grad_input(const Conv2dShape& shape, const T* gy, const T* w, T* scratch, T* gx);

/// gw[out_c,c,kh,kw]: the gradient of w.
template <typename T>
void conv2d_grad_weight(const Conv2dShape& shape, const T* gy, const T* x, T* scratch, T* gw);

/// gb[out_c]: gy summed over images and positions (sum_channels, channel_bias.h).
template <typename T>
void conv2d_grad_bias(const Conv2dShape& shape, const T* gy, T* gb);

}  // namespace rematch::cuda
