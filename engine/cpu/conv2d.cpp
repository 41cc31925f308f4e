#include "engine/cpu/conv2d.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/cpu/gemm.h"
#include "engine/cpu/reduce.h"
#include "engine/cpu/threads.h"

namespace rematch::cpu {

namespace {

// An image is copied into zero-padded planes, one per channel and stride phase (row mod stride_h,
// column mod stride_w). Within such planes every kernel tap is one constant shift, so convolution
// is a matrix product whose right-hand rows are shifted views of the copy: nothing is unfolded.
// Rows of outputs are as long as rows of the copy ("wide"); the surplus columns are computed and
// dropped.

/// Elements past a plane's end that a vector may touch.
constexpr std::int64_t kSlack = 16;
/// Images whose copies conv2d_grad_weight holds at once, in elements; part of the summation order.
constexpr std::int64_t kGroupElements = 1 << 16;
/// Outputs per pass of conv2d_grad_weight, so that rows stay in the first-level cache; likewise.
constexpr std::int64_t kWideBlock = 512;

/// Room for `size` and the slack at an odd number of cache lines, so that planes do not all compete
/// for the same cache sets.
constexpr std::int64_t plane_stride(std::int64_t size) {
  const std::int64_t lines = (size + kSlack + 15) / 16;
  return (lines | 1) * 16;
}

struct Layout {
  explicit Layout(const Conv2dShape& s)
      : out_h(s.out_h()),
        out_w(s.out_w()),
        rows((s.h + 2 * s.pad_h + s.stride_h - 1) / s.stride_h),
        cols((s.w + 2 * s.pad_w + s.stride_w - 1) / s.stride_w),
        phase(rows * cols),
        x_plane(plane_stride(phase * s.stride_h * s.stride_w)),
        wide((out_h - 1) * cols + out_w),
        wide_padded((wide + 7) / 8 * 8),
        lead((s.kh - 1) / s.stride_h * cols + (s.kw - 1) / s.stride_w),
        gy_plane(plane_stride(lead + phase)),
        group(std::clamp<std::int64_t>(kGroupElements / image(s), 1,
                                       std::max<std::int64_t>(s.n, 1))) {}

  [[nodiscard]] std::int64_t image(const Conv2dShape& s) const {
    return s.c * x_plane + s.out_c * gy_plane;
  }

  std::int64_t out_h;
  std::int64_t out_w;
  std::int64_t rows;         // of a phase plane
  std::int64_t cols;         // of a phase plane
  std::int64_t phase;        // rows * cols
  std::int64_t x_plane;      // stride between channels of the copy of x
  std::int64_t wide;         // from the first to the last output in wide rows
  std::int64_t wide_padded;  // wide, rounded up to whole vectors
  std::int64_t lead;         // the largest shift: zeros before a wide plane of gy
  std::int64_t gy_plane;     // stride between channels of the copy of gy
  std::int64_t group;        // images per pass of conv2d_grad_weight
};

/// Calls row(source row, plane offset, first column of the plane, first source column, count) for
/// each run of image pixels in the phase planes of one channel.
template <typename Row>
void for_each_row(const Conv2dShape& s, const Layout& l, const Row& row) {
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

template <typename T>
void copy_n(const T* from, std::int64_t count, T* to) {
  std::memcpy(to, from, sizeof(T) * static_cast<std::size_t>(count));
}

/// Writes one image into phase planes whose padding is already zero.
template <typename T>
void copy_image(const Conv2dShape& s, const Layout& l, const T* x, T* planes) {
  parallel(s.c, kGrain / (s.h * s.w) + 1, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      const T* image = x + c * s.h * s.w;
      T* to = planes + c * l.x_plane;
      for_each_row(s, l, [&](std::int64_t y, std::int64_t at, std::int64_t x0, std::int64_t count) {
        const T* from = image + y * s.w + x0;
        if (s.stride_w == 1) {
          copy_n(from, count, to + at);
        } else {
          for (std::int64_t i = 0; i < count; ++i) to[at + i] = from[i * s.stride_w];
        }
      });
    }
  });
}

/// Writes one image of gy in wide rows into planes that are already zero elsewhere.
template <typename T>
void copy_gradient(const Conv2dShape& s, const Layout& l, const T* gy, T* planes) {
  for (std::int64_t o = 0; o < s.out_c; ++o, planes += l.gy_plane) {
    for (std::int64_t y = 0; y < l.out_h; ++y, gy += l.out_w) {
      copy_n(gy, l.out_w, planes + l.lead + y * l.cols);
    }
  }
}

/// A buffer that only grows, so that repeated calls do not allocate.
std::int64_t* table(std::int64_t size) {
  static thread_local std::vector<std::int64_t> entries;
  if (entries.size() < static_cast<std::size_t>(size)) {
    entries.resize(static_cast<std::size_t>(size));
  }
  return entries.data();
}

/// Where in the copy of x the view of tap (c, ky, kx) starts, in row-major order.
const std::int64_t* tap_table(const Conv2dShape& s, const Layout& l) {
  std::int64_t* const entries = table(s.c * s.kh * s.kw);
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
std::int64_t gather_phase(const Conv2dShape& s, const Layout& l, std::int64_t py, std::int64_t px,
                          const T* w, T* weights, std::int64_t* shifts) {
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

/// Multiply-adds below which a second thread costs more than it brings.
constexpr std::int64_t kProductGrain = 1 << 17;

/// chain_product with its columns shared out among threads.
template <typename T>
void shared_product(std::int64_t rows, std::int64_t cols, std::int64_t depth, const Strided<T>& a,
                    const T* b, const TableRows& b_rows, ChainStart<T> start, T* c,
                    std::int64_t ldc) {
  const std::int64_t grain = kProductGrain / std::max<std::int64_t>(rows * depth, 1) + 1;
  parallel(cols, grain, 2 * Simd<T>::kWidth, [&](std::int64_t begin, std::int64_t end) {
    chain_product(rows, end - begin, depth, a, b + begin, b_rows, start, c + begin, ldc);
  });
}

}  // namespace

std::int64_t conv2d_scratch_elements(const Conv2dShape& s) {
  const Layout l(s);
  const std::int64_t forward = s.c * l.x_plane + s.out_c * l.wide_padded;
  const std::int64_t grad_input =
      s.out_c * l.gy_plane + s.c * (l.phase + kSlack) + s.out_c * s.c * s.kh * s.kw;
  return std::max({forward, grad_input, l.group * l.image(s)});
}

template <typename T>
void conv2d_forward(const Conv2dShape& s, const T* x, const T* w, const T* b, T* scratch, T* y) {
  using Kind = typename ChainStart<T>::Kind;
  const Layout l(s);
  const std::int64_t depth = s.c * s.kh * s.kw;
  const std::int64_t out_plane = l.out_h * l.out_w;
  const TableRows taps{tap_table(s, l)};
  const ChainStart<T> start{b == nullptr ? Kind::kZero : Kind::kRowValue, b};
  T* const planes = scratch;
  T* const wide = planes + s.c * l.x_plane;
  std::fill_n(planes, s.c * l.x_plane, T(0));
  for (std::int64_t n = 0; n < s.n; ++n) {
    copy_image(s, l, x + n * s.c * s.h * s.w, planes);
    T* out = y + n * s.out_c * out_plane;
    if (l.out_w == l.cols) {
      shared_product(s.out_c, out_plane, depth, Strided<T>{w, depth, 1}, planes, taps, start, out,
                     out_plane);
      continue;
    }
    shared_product(s.out_c, l.wide_padded, depth, Strided<T>{w, depth, 1}, planes, taps, start,
                   wide, l.wide_padded);
    for (std::int64_t o = 0; o < s.out_c; ++o) {
      for (std::int64_t row = 0; row < l.out_h; ++row, out += l.out_w) {
        copy_n(wide + o * l.wide_padded + row * l.cols, l.out_w, out);
      }
    }
  }
}

template <typename T>
void conv2d_grad_input(const Conv2dShape& s, const T* gy, const T* w, T* scratch, T* gx) {
  const Layout l(s);
  T* const planes = scratch;
  T* const wide = planes + s.out_c * l.gy_plane;
  T* const weights = wide + s.c * (l.phase + kSlack);
  std::int64_t* const shifts = table(s.out_c * s.kh * s.kw);
  std::fill_n(planes, s.out_c * l.gy_plane, T(0));
  const bool one_phase = s.stride_h == 1 && s.stride_w == 1;
  std::int64_t taps = one_phase ? gather_phase(s, l, 0, 0, w, weights, shifts) : 0;
  for (std::int64_t n = 0; n < s.n; ++n) {
    copy_gradient(s, l, gy + n * s.out_c * l.out_h * l.out_w, planes);
    T* const image = gx + n * s.c * s.h * s.w;
    for (std::int64_t py = 0; py < s.stride_h; ++py) {
      const std::int64_t first = py < s.pad_h ? (s.pad_h - py + s.stride_h - 1) / s.stride_h : 0;
      const std::int64_t y0 = first * s.stride_h + py - s.pad_h;
      const std::int64_t count = y0 < s.h ? (s.h - 1 - y0) / s.stride_h + 1 : 0;
      for (std::int64_t px = 0; px < s.stride_w; ++px) {
        const std::int64_t skip = px < s.pad_w ? (s.pad_w - px + s.stride_w - 1) / s.stride_w : 0;
        const std::int64_t x0 = skip * s.stride_w + px - s.pad_w;
        if (!one_phase) taps = gather_phase(s, l, py, px, w, weights, shifts);
        const std::int64_t span = (count * l.cols + 7) / 8 * 8;
        const std::int64_t depth = s.out_c * taps;
        shared_product(s.c, span, depth, Strided<T>{weights, depth, 1}, planes + first * l.cols,
                       TableRows{shifts}, ChainStart<T>{}, wide, span);
        for (std::int64_t c = 0; c < s.c; ++c) {
          for (std::int64_t row = 0; row < count; ++row) {
            const T* from = wide + c * span + row * l.cols + skip;
            T* to = image + (c * s.h + y0 + row * s.stride_h) * s.w;
            for (std::int64_t ix = x0; ix < s.w; ix += s.stride_w) to[ix] = *from++;
          }
        }
      }
    }
  }
}

template <typename T>
void conv2d_grad_weight(const Conv2dShape& s, const T* gy, const T* x, T* scratch, T* gw) {
  const Layout l(s);
  const std::int64_t depth = s.c * s.kh * s.kw;
  const TableRows taps{tap_table(s, l)};
  const std::int64_t x_image = s.c * l.x_plane;
  const std::int64_t gy_image = s.out_c * l.gy_plane;
  T* const gy_planes = scratch + l.group * x_image;
  std::fill_n(scratch, l.group * l.image(s), T(0));
  std::fill_n(gw, s.out_c * depth, T(0));
  for (std::int64_t n = 0; n < s.n; n += l.group) {
    const std::int64_t images = std::min(l.group, s.n - n);
    for (std::int64_t i = 0; i < images; ++i) {
      copy_image(s, l, x + (n + i) * s.c * s.h * s.w, scratch + i * x_image);
      copy_gradient(s, l, gy + (n + i) * s.out_c * l.out_h * l.out_w, gy_planes + i * gy_image);
    }
    const std::int64_t work = std::max<std::int64_t>(depth * images * l.wide_padded, 1);
    parallel(s.out_c, kProductGrain / work + 1, 4, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = 0; at < l.wide_padded; at += kWideBlock) {
        // Whole vectors only: gy is zero past its last output.
        lane_product<true>(
            end - begin, depth, gy_planes + begin * l.gy_plane + l.lead + at, l.gy_plane,
            scratch + at, taps, images, std::min(kWideBlock, l.wide_padded - at), gy_image, x_image,
            [=](std::int64_t o, std::int64_t k, T value) { gw[(begin + o) * depth + k] += value; });
      }
    });
  }
}

template <typename T>
void conv2d_grad_bias(const Conv2dShape& s, const T* gy, T* gb) {
  const std::int64_t plane = s.out_h() * s.out_w();
  const std::int64_t grain = kGrain / std::max<std::int64_t>(s.n * plane, 1) + 1;
  parallel(s.out_c, grain, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      LaneSum<T> sum;
      for (std::int64_t n = 0; n < s.n; ++n) {
        const T* from = gy + (n * s.out_c + o) * plane;
        sum.add(plane, [=](std::int64_t i) { return from[i]; });
      }
      gb[o] = static_cast<T>(sum.total());
    }
  });
}

#define REMATCH_INSTANTIATE(T)                                                            \
  template void conv2d_forward(const Conv2dShape&, const T*, const T*, const T*, T*, T*); \
  template void conv2d_grad_input(const Conv2dShape&, const T*, const T*, T*, T*);        \
  template void conv2d_grad_weight(const Conv2dShape&, const T*, const T*, T*, T*);       \
  template void conv2d_grad_bias(const Conv2dShape&, const T*, T*);
REMATCH_INSTANTIATE(float)
REMATCH_INSTANTIATE(double)
#undef REMATCH_INSTANTIATE

}  // namespace rematch::cpu
