#pragma once

// How conv2d kernels lay out their operands. An image is copied into zero-padded planes, one per
// channel and stride phase (row mod stride_h, column mod stride_w). Within such planes every kernel
// tap is one constant shift, so convolution is a product whose right-hand rows are shifted views of
// the copy: nothing is unfolded.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/kernels/conv2d.h"

namespace rematch::cpu::detail {

/// Elements past a plane's end that a vector may touch.
inline constexpr std::int64_t kSlack = 16;
/// Elements of images whose copies are held at once, where more than one fits.
inline constexpr std::int64_t kGroupElements = 1 << 17;

/// Room for `size` and the slack at an odd number of cache lines, so that planes do not all compete
/// for the same cache sets.
constexpr std::int64_t plane_stride(std::int64_t size) {
  const std::int64_t lines = (size + kSlack + 15) / 16;
  return (lines | 1) * 16;
}

struct Conv2dLayout {
  explicit Conv2dLayout(const Conv2dShape& s)
      : out_h(s.out_h()),
        out_w(s.out_w()),
        out_plane(out_h * out_w),
        rows((s.h + 2 * s.pad_h + s.stride_h - 1) / s.stride_h),
        cols((s.w + 2 * s.pad_w + s.stride_w - 1) / s.stride_w),
        phase(rows * cols),
        x_plane(plane_stride(phase * s.stride_h * s.stride_w)),
        wide(((out_h - 1) * cols + out_w + kSlack - 1) / kSlack * kSlack),
        lead((s.kh - 1) / s.stride_h * cols + (s.kw - 1) / s.stride_w),
        gy_plane(plane_stride(lead + phase)) {}

  /// Images of `elements` each that are worked on at once.
  static std::int64_t group(const Conv2dShape& s, std::int64_t elements) {
    return std::clamp<std::int64_t>(kGroupElements / std::max<std::int64_t>(elements, 1), 1,
                                    std::max<std::int64_t>(s.n, 1));
  }

  std::int64_t out_h;
  std::int64_t out_w;
  std::int64_t out_plane;
  std::int64_t rows;      // of a phase plane
  std::int64_t cols;      // of a phase plane
  std::int64_t phase;     // rows * cols
  std::int64_t x_plane;   // stride between channels of the copy of x
  std::int64_t wide;      // outputs in rows as long as those of the copy, in whole vectors
  std::int64_t lead;      // the largest shift: zeros before a plane of gy
  std::int64_t gy_plane;  // stride between channels of the copy of gy
};

template <typename T>
void copy_elements(const T* from, std::int64_t count, T* to) {
  std::memcpy(to, from, sizeof(T) * static_cast<std::size_t>(count));
}

/// Calls row(source row, plane offset, first column of the plane, first source column, count) for
/// each run of image pixels in the phase planes of one channel.
template <typename Row>
void for_each_phase_row(const Conv2dShape& s, const Conv2dLayout& l, const Row& row) {
  for (std::int64_t py = 0; py < s.stride_h; ++py) {
    for (std::int64_t px = 0; px < s.stride_w; ++px) {
      const std::int64_t base = (py * s.stride_w + px) * l.phase;
      const std::int64_t skip = px < s.pad_w ? (s.pad_w - px + s.stride_w - 1) / s.stride_w : 0;
      const std::int64_t x0 = skip * s.stride_w + px - s.pad_w;
      const std::int64_t count = x0 < s.w ? (s.w - 1 - x0) / s.stride_w + 1 : 0;
      for (std::int64_t y = 0; y < l.rows; ++y) {
        const std::int64_t from = y * s.stride_h + py - s.pad_h;
        if (from >= 0 && from < s.h) row(from, base + y * l.cols + skip, x0, count);
      }
    }
  }
}

/// Writes a channel of an image into its phase planes, whose padding is already zero.
template <typename T>
void copy_channel(const Conv2dShape& s, const Conv2dLayout& l, const T* image, T* planes) {
  for_each_phase_row(s, l,
                     [&](std::int64_t y, std::int64_t at, std::int64_t x0, std::int64_t count) {
                       const T* from = image + y * s.w + x0;
                       if (s.stride_w == 1) {
                         copy_elements(from, count, planes + at);
                       } else {
                         for (std::int64_t i = 0; i < count; ++i)
                           planes[at + i] = from[i * s.stride_w];
                       }
                     });
}

/// Writes a channel of gy into its plane, which is already zero elsewhere.
template <typename T>
void copy_gradient(const Conv2dLayout& l, const T* gy, T* plane) {
  for (std::int64_t y = 0; y < l.out_h; ++y) {
    copy_elements(gy + y * l.out_w, l.out_w, plane + l.lead + y * l.cols);
  }
}

/// A buffer of the calling thread that only grows, so that repeated calls do not allocate.
inline std::int64_t* offset_table(std::int64_t size) {
  static thread_local std::vector<std::int64_t> entries;
  if (entries.size() < static_cast<std::size_t>(size)) {
    entries.resize(static_cast<std::size_t>(size));
  }
  return entries.data();
}

/// Where in the copy of x the view of tap (c, ky, kx) starts, in row-major order.
inline const std::int64_t* tap_table(const Conv2dShape& s, const Conv2dLayout& l) {
  std::int64_t* const entries = offset_table(s.c * s.kh * s.kw);
  std::int64_t* next = entries;
  for (std::int64_t ky = 0; ky < s.kh; ++ky) {
    const std::int64_t row = ky % s.stride_h * s.stride_w * l.phase + ky / s.stride_h * l.cols;
    for (std::int64_t kx = 0; kx < s.kw; ++kx) {
      *next++ = row + kx % s.stride_w * l.phase + kx / s.stride_w;
    }
  }
  const std::int64_t taps = s.kh * s.kw;
  for (std::int64_t i = taps; i < s.c * taps; ++i) entries[i] = entries[i - taps] + l.x_plane;
  return entries;
}

/// The weights of one phase as [c][out_c][taps] and the shift of each (out_c, tap) into the copy of
/// gy. Returns the number of taps.
template <typename T>
std::int64_t gather_phase(const Conv2dShape& s, const Conv2dLayout& l, std::int64_t py,
                          std::int64_t px, const T* w, T* weights, std::int64_t* shifts) {
  std::int64_t taps = 0;
  for (std::int64_t ky = py; ky < s.kh; ky += s.stride_h) {
    for (std::int64_t kx = px; kx < s.kw; kx += s.stride_w) {
      shifts[taps++] = l.lead - (ky / s.stride_h * l.cols + kx / s.stride_w);
    }
  }
  for (std::int64_t i = taps; i < s.out_c * taps; ++i) shifts[i] = shifts[i - taps] + l.gy_plane;
  for (std::int64_t c = 0; c < s.c; ++c) {
    for (std::int64_t o = 0; o < s.out_c; ++o) {
      const T* from = w + (o * s.c + c) * s.kh * s.kw;
      for (std::int64_t ky = py; ky < s.kh; ky += s.stride_h) {
        for (std::int64_t kx = px; kx < s.kw; kx += s.stride_w) *weights++ = from[ky * s.kw + kx];
      }
    }
  }
  return taps;
}

}  // namespace rematch::cpu::detail
