#pragma once

#include <cstdint>

#include "engine/cpu/conv2d.h"

namespace rematch::cuda {

/// A 2d cross-correlation (torch.nn.functional.conv2d, groups = 1, dilation = 1) of x[n,c,h,w] with
/// weights [out_c,c,kh,kw] under zero padding. Kernels need out_h() >= 1 and out_w() >= 1.

/// The number of elements of scratch that any one conv2d kernel needs for this shape.
std::int64_t conv2d_scratch_elements(const cpu::Conv2dShape& shape);

/// y[n,out_c,out_h,out_w] = x * w + b; `b` may be null. Each element is one fma chain that starts
/// from the bias and runs over (c, kh, kw) in row-major order, padding included as zeros.
template <typename T>
void conv2d_forward(const cpu::Conv2dShape& shape, const T* x, const T* w, const T* b, T* scratch,
                    T* y);

/// gx[n,c,h,w]: the gradient of x. Zeros stand in for output positions that do not exist, so a
/// non-finite weight may turn more of gx into NaN than the formula does.
template <typename T>
void conv2d_grad_input(const cpu::Conv2dShape& shape, const T* gy, const T* w, T* scratch, T* gx);

/// gw[out_c,c,kh,kw]: the gradient of w, summed over images and positions in a fixed order. As for
/// conv2d_grad_input, a non-finite x may spread as NaN.
template <typename T>
void conv2d_grad_weight(const cpu::Conv2dShape& shape, const T* gy, const T* x, T* scratch, T* gw);

/// gb[out_c]: gy summed over images and positions.
template <typename T>
void conv2d_grad_bias(const cpu::Conv2dShape& shape, const T* gy, T* gb);

}  // namespace rematch::cuda
