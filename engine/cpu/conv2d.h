#pragma once

#include <cstdint>

namespace rematch::cpu {

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

/// The number of elements of scratch that any one conv2d kernel needs for this shape.
std::int64_t conv2d_scratch_elements(const Conv2dShape& shape);

/// y[n,out_c,out_h,out_w] = x * w + b; `b` may be null. Each element is one fma chain that starts
/// from the bias and runs over (c, kh, kw) in row-major order, padding included as zeros.
template <typename T>
void conv2d_forward(const Conv2dShape& shape, const T* x, const T* w, const T* b, T* scratch, T* y);

/// gx[n,c,h,w]: the gradient of x. Zeros stand in for output positions that do not exist, so a
/// non-finite weight may turn more of gx into NaN than the formula does.
template <typename T>
void conv2d_grad_input(const Conv2dShape& shape, const T* gy, const T* w, T* scratch, T* gx);

/// gw[out_c,c,kh,kw]: the gradient of w. Each element is a sum, in ascending order from zero, of
/// fma chains over up to 128 outputs each, in whole rows of an image (at least one); padding counts
/// as zeros, so a non-finite gy may spread as NaN.
template <typename T>
void conv2d_grad_weight(const Conv2dShape& shape, const T* gy, const T* x, T* scratch, T* gw);

/// gb[out_c]: gy summed over images and positions: as a LaneSum with one run per image, or for
/// images of one pixel as column_sums in double (reduce.h).
template <typename T>
void conv2d_grad_bias(const Conv2dShape& shape, const T* gy, T* gb);

}  // namespace rematch::cpu
