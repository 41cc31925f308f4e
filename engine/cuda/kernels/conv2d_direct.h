#pragma once

#include <cstdint>

#include "engine/kernels/conv2d.h"

namespace rematch::cuda {

// Convolution by its definition, for small shapes and those that cuDNN has no deterministic engine
// for. Sums are in double and in a fixed order, rounded to T once, to bfloat16 by way of float32,
// in which a bias is added; pointers are the device's, work goes to stream().

/// y[n,out_c,out_h,out_w]: c, kh, kw ascending; `b`, which may be null, is added to the rounded
/// sum.
template <typename T>
void direct_forward(const Conv2dShape& shape, const T* x, const T* w, const T* b, T* y);

/// gx[n,c,h,w]: out_c, kh, kw ascending.
template <typename T>
void direct_grad_input(const Conv2dShape& shape, const T* gy, const T* w, T* gx);

/// gw[out_c,c,kh,kw]: output positions i, i + 32, ... of all images by lane i of a warp, then the
/// lanes as a tree.
template <typename T>
void direct_grad_weight(const Conv2dShape& shape, const T* gy, const T* x, T* gw);

}  // namespace rematch::cuda
