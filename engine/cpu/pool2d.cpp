#include "engine/kernels/pool2d.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "engine/cpu/threads.h"

namespace rematch::cpu {

namespace {

// Long rows of outputs are taken tap by tap, so that they vectorise; short ones window by window.
// Either way each output meets its window in row-major order, and each input its windows in
// row-major order, so the results are the same bits.

/// Rows of fewer outputs than this go window by window.
constexpr std::int64_t kLongRow = 16;

/// The better of `best` and the pixel at `at`: the larger, a later NaN, the earlier of equals.
template <typename T>
inline void consider(T value, std::int64_t at, T& best, std::int64_t& index) {
  const bool better = (value > best) | (value != value);
  index = better ? at : index;
  best = better ? value : best;
}

/// Outputs [begin, end) of a row for which kernel column kx lies on the image.
struct Span {
  std::int64_t begin;
  std::int64_t end;
};
template <typename Stride>
Span columns(const Pool2dShape& s, std::int64_t out_w, Stride stride, std::int64_t kx) {
  const std::int64_t reach = s.w - 1 + s.pad_w - kx;
  return {kx < s.pad_w ? (s.pad_w - kx + stride - 1) / stride : 0,
          reach < 0 ? 0 : std::min(out_w, reach / stride + 1)};
}

/// Calls use(stride) with the stride a compile-time constant where that lets loops vectorise and
/// spares divisions.
template <typename Use>
void with_stride(std::int64_t stride, const Use& use) {
  if (stride == 1) {
    use(std::integral_constant<std::int64_t, 1>{});
  } else if (stride == 2) {
    use(std::integral_constant<std::int64_t, 2>{});
  } else {
    use(stride);
  }
}

/// One row of window maxima over the kernel rows [ky0, ky1) that lie on the image.
template <typename T, typename Stride>
void max_row(const Pool2dShape& s, std::int64_t out_w, std::int64_t top, std::int64_t ky0,
             std::int64_t ky1, Stride stride, const T* __restrict x, T* __restrict y,
             std::int32_t* __restrict indices) {
  for (std::int64_t ox = 0; ox < out_w; ++ox) {
    const std::int64_t left = std::max<std::int64_t>(ox * stride - s.pad_w, 0);
    y[ox] = -std::numeric_limits<T>::infinity();
    indices[ox] = static_cast<std::int32_t>((top + ky0) * s.w + left);
  }
  for (std::int64_t ky = ky0; ky < ky1; ++ky) {
    for (std::int64_t kx = 0; kx < s.kw; ++kx) {
      const Span span = columns(s, out_w, stride, kx);
      const std::int64_t base = (top + ky) * s.w - s.pad_w + kx;
      for (std::int64_t ox = span.begin; ox < span.end; ++ox) {
        const T value = x[base + ox * stride];
        const auto at = static_cast<std::int32_t>(base + ox * stride);
        const T best = y[ox];
        const std::int32_t index = indices[ox];
        const bool better = (value > best) | (value != value);
        y[ox] = better ? value : best;
        indices[ox] = better ? at : index;
      }
    }
  }
}

/// One row of window sums.
template <typename T, typename Stride>
void sum_row(const Pool2dShape& s, std::int64_t out_w, std::int64_t top, std::int64_t ky0,
             std::int64_t ky1, Stride stride, const T* __restrict x, T* __restrict y) {
  std::fill_n(y, out_w, T(0));
  for (std::int64_t ky = ky0; ky < ky1; ++ky) {
    for (std::int64_t kx = 0; kx < s.kw; ++kx) {
      const Span span = columns(s, out_w, stride, kx);
      const std::int64_t base = (top + ky) * s.w - s.pad_w + kx;
      for (std::int64_t ox = span.begin; ox < span.end; ++ox) y[ox] += x[base + ox * stride];
    }
  }
}

/// All maxima of a plane for kernel 2, stride 2 and no padding, the common case.
template <typename T>
void max_halving(const Pool2dShape& s, std::int64_t out_w, const T* __restrict x, T* __restrict y,
                 std::int32_t* __restrict indices) {
  for (std::int64_t top = 0; top + 1 < s.h; top += 2) {
    for (std::int64_t ox = 0; ox < out_w; ++ox) {
      const std::int64_t at = top * s.w + 2 * ox;
      T best = x[at];
      std::int64_t index = at;
      consider(x[at + 1], at + 1, best, index);
      consider(x[at + s.w], at + s.w, best, index);
      consider(x[at + s.w + 1], at + s.w + 1, best, index);
      *y++ = best;
      *indices++ = static_cast<std::int32_t>(index);
    }
  }
}

/// For each row of outputs calls row(top of its windows, first and last + 1 kernel row on the
/// image).
template <typename Row>
void for_each_row(const Pool2dShape& s, const Row& row) {
  const std::int64_t out_h = s.out_h();
  for (std::int64_t oy = 0; oy < out_h; ++oy) {
    const std::int64_t top = oy * s.stride_h - s.pad_h;
    row(top, std::max<std::int64_t>(-top, 0), std::min(s.kh, s.h - top));
  }
}

/// Calls visit(output column, columns [x0, x1) on the image) for each window of a row.
template <typename Visit>
void for_each_window(const Pool2dShape& s, std::int64_t out_w, const Visit& visit) {
  for (std::int64_t ox = 0; ox < out_w; ++ox) {
    const std::int64_t left = ox * s.stride_w - s.pad_w;
    visit(ox, std::max<std::int64_t>(left, 0), std::min(left + s.kw, s.w));
  }
}

/// max_row, window by window.
template <typename T>
void max_windows(const Pool2dShape& s, std::int64_t out_w, std::int64_t y0, std::int64_t y1,
                 const T* x, T* y, std::int32_t* indices) {
  for_each_window(s, out_w, [=](std::int64_t ox, std::int64_t x0, std::int64_t x1) {
    T best = -std::numeric_limits<T>::infinity();
    std::int64_t index = y0 * s.w + x0;
    for (std::int64_t row = y0; row < y1; ++row) {
      for (std::int64_t col = x0; col < x1; ++col)
        consider(x[row * s.w + col], row * s.w + col, best, index);
    }
    y[ox] = best;
    indices[ox] = static_cast<std::int32_t>(index);
  });
}

/// Window sums of a row, window by window.
template <typename T>
void sum_windows(const Pool2dShape& s, std::int64_t out_w, std::int64_t y0, std::int64_t y1,
                 const T* x, T* y) {
  for_each_window(s, out_w, [=](std::int64_t ox, std::int64_t x0, std::int64_t x1) {
    T total = 0;
    for (std::int64_t row = y0; row < y1; ++row) {
      for (std::int64_t col = x0; col < x1; ++col) total += x[row * s.w + col];
    }
    y[ox] = total;
  });
}

}  // namespace

template <typename T>
void max_pool2d_forward(const Pool2dShape& s, const T* x, T* y, std::int32_t* indices) {
  const std::int64_t out_w = s.out_w();
  if (s.kh == 2 && s.kw == 2 && s.stride_h == 2 && s.stride_w == 2 && s.pad_h + s.pad_w == 0) {
    const std::int64_t out_plane = s.out_h() * out_w;
    parallel(s.n * s.c, kGrain / (s.h * s.w) + 1, 1, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p) {
        max_halving(s, out_w, x + p * s.h * s.w, y + p * out_plane, indices + p * out_plane);
      }
    });
    return;
  }
  with_stride(s.stride_w, [&](auto stride) {
    for (std::int64_t p = 0; p < s.n * s.c; ++p) {
      for_each_row(s, [&](std::int64_t top, std::int64_t ky0, std::int64_t ky1) {
        if (out_w < kLongRow) {
          max_windows(s, out_w, top + ky0, top + ky1, x, y, indices);
        } else {
          max_row(s, out_w, top, ky0, ky1, stride, x, y, indices);
        }
        y += out_w;
        indices += out_w;
      });
      x += s.h * s.w;
    }
  });
}

template <typename T>
void max_pool2d_backward(const Pool2dShape& s, const T* gy, const std::int32_t* indices, T* gx) {
  const std::int64_t plane = s.h * s.w;
  const std::int64_t out_plane = s.out_h() * s.out_w();
  parallel(s.n * s.c, kGrain / std::max<std::int64_t>(plane, 1) + 1, 1,
           [=](std::int64_t begin, std::int64_t end) {
             std::fill(gx + begin * plane, gx + end * plane, T(0));
             for (std::int64_t p = begin; p < end; ++p) {
               T* to = gx + p * plane;
               const std::int64_t first = p * out_plane;
               for (std::int64_t i = first; i < first + out_plane; ++i) to[indices[i]] += gy[i];
             }
           });
}

template <typename T>
void avg_pool2d_forward(const Pool2dShape& s, const T* x, T* y) {
  const std::int64_t out_w = s.out_w();
  const T area = static_cast<T>(s.kh * s.kw);
  with_stride(s.stride_w, [&](auto stride) {
    for (std::int64_t p = 0; p < s.n * s.c; ++p) {
      for_each_row(s, [&](std::int64_t top, std::int64_t ky0, std::int64_t ky1) {
        T* __restrict to = y;
        if (out_w < kLongRow) {
          sum_windows(s, out_w, top + ky0, top + ky1, x, to);
        } else {
          sum_row(s, out_w, top, ky0, ky1, stride, x, to);
        }
        for (std::int64_t ox = 0; ox < out_w; ++ox) to[ox] /= area;
        y += out_w;
      });
      x += s.h * s.w;
    }
  });
}

template <typename T>
void avg_pool2d_backward(const Pool2dShape& s, const T* gy, T* gx) {
  const std::int64_t out_w = s.out_w();
  const std::int64_t plane = s.h * s.w;
  const T area = static_cast<T>(s.kh * s.kw);
  std::fill_n(gx, s.n * s.c * plane, T(0));
  with_stride(s.stride_w, [&](auto stride) {
    for (std::int64_t p = 0; p < s.n * s.c; ++p) {
      for_each_row(s, [&](std::int64_t top, std::int64_t ky0, std::int64_t ky1) {
        T* __restrict to = gx;
        for (std::int64_t ky = ky0; ky < ky1; ++ky) {
          // Descending kx is ascending output column for any one input.
          for (std::int64_t kx = s.kw - 1; kx >= 0; --kx) {
            const Span span = columns(s, out_w, stride, kx);
            const std::int64_t base = (top + ky) * s.w - s.pad_w + kx;
            for (std::int64_t ox = span.begin; ox < span.end; ++ox) {
              to[base + ox * stride] += gy[ox] / area;
            }
          }
        }
        gy += out_w;
      });
      gx += plane;
    }
  });
}

REMATCH_POOL2D_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
