#include "engine/kernels/conv2d.h"

#include <algorithm>

#include "engine/cpu/block_sizes.h"
#include "engine/cpu/chain.h"
#include "engine/cpu/conv2d_planes.h"
#include "engine/cpu/product.h"
#include "engine/cpu/reduce.h"
#include "engine/cpu/threads.h"
#include "engine/cpu/transpose.h"

namespace rematch::cpu {

namespace {

using detail::Conv2dLayout;

/// The vectors that cover an image's outputs (or, for its gradient, pixels): `per_row` in each row,
/// rows b_row apart in the planes and c_row apart in the result.
struct Cover {
  std::int64_t vectors;
  std::int64_t per_row;
  std::int64_t b_row;
  std::int64_t c_row;

  /// Whole rows of `w` elements where vectors fit them, which then are a result's own rows; else
  /// one row of `wide` elements, as many as the planes have.
  Cover(std::int64_t width, std::int64_t h, std::int64_t w, std::int64_t cols, std::int64_t wide)
      : vectors(w % width == 0 ? h * (w / width) : (wide + width - 1) / width),
        per_row(w % width == 0 ? w / width : vectors),
        b_row(cols),
        c_row(w) {}
};

/// Images [0, images) of a convolution as products, shared out among threads: chains from `panel`,
/// whose b and c are the first image's.
template <typename T>
void convolve(const ChainKernel<T>& kernel, const Cover& cover, const ChainPanel<T>& panel,
              std::int64_t images, std::int64_t b_image, std::int64_t c_image) {
  const std::int64_t panels = (cover.vectors + kernel.vectors - 1) / kernel.vectors;
  const std::int64_t work = panel.rows * panel.length * kernel.columns();
  parallel(images * panels, kProductGrain / std::max<std::int64_t>(work, 1) + 1, 1,
           [&](std::int64_t begin, std::int64_t end) {
             ChainPanel<T> p = panel;
             p.last = kernel.width;
             for (std::int64_t unit = begin; unit < end; ++unit) {
               const std::int64_t image = unit / panels;
               const std::int64_t first = unit % panels * kernel.vectors;
               p.b = panel.b + image * b_image;
               p.c = panel.c + image * c_image;
               p.vectors =
                   static_cast<int>(std::min<std::int64_t>(kernel.vectors, cover.vectors - first));
               for (int v = 0; v < p.vectors; ++v) {
                 const std::int64_t row = (first + v) / cover.per_row;
                 const std::int64_t at = (first + v) % cover.per_row * kernel.width;
                 p.b_at[v] = row * cover.b_row + at;
                 p.c_at[v] = row * cover.c_row + at;
               }
               kernel.run(p);
             }
           });
}

/// body(image, channel) for each of images [0, images) and channels [0, channels), on threads.
template <typename Body>
void for_each_channel(std::int64_t images, std::int64_t channels, std::int64_t plane,
                      const Body& body) {
  parallel(images * channels, kGrain / std::max<std::int64_t>(plane, 1) + 1, 1,
           [&](std::int64_t begin, std::int64_t end) {
             for (std::int64_t i = begin; i < end; ++i) body(i / channels, i % channels);
           });
}

/// Images per pass of each kernel, and where parts of the scratch begin.
struct ForwardScratch {
  std::int64_t group;
  std::int64_t wide;
  std::int64_t size;
  ForwardScratch(const Conv2dShape& s, const Conv2dLayout& l)
      : group(Conv2dLayout::group(s, s.c * l.x_plane + s.out_c * l.wide)),
        wide(group * s.c * l.x_plane),
        size(wide + group * s.out_c * l.wide) {}
};

struct GradInputScratch {
  std::int64_t group;
  std::int64_t span;  // of a channel's pixels in wide rows
  std::int64_t wide;
  std::int64_t weights;
  std::int64_t size;
  GradInputScratch(const Conv2dShape& s, const Conv2dLayout& l)
      : group(Conv2dLayout::group(s, s.out_c * l.gy_plane + s.c * (l.phase + detail::kSlack))),
        span(l.phase + detail::kSlack),
        wide(group * s.out_c * l.gy_plane),
        weights(wide + group * s.c * span),
        size(weights + s.out_c * s.c * s.kh * s.kw) {}
};

struct GradWeightScratch {
  std::int64_t group;
  std::int64_t gy;
  std::int64_t gw;
  std::int64_t size;
  GradWeightScratch(const Conv2dShape& s, const Conv2dLayout& l)
      : group(Conv2dLayout::group(s, s.c * l.x_plane + s.out_c * l.out_plane)),
        gy(group * s.c * l.x_plane),
        gw(gy + group * s.out_c * l.out_plane),
        size(gw + s.out_c * s.c * s.kh * s.kw) {}
};

}  // namespace

std::int64_t conv2d_scratch_elements(const Conv2dShape& s) {
  const Conv2dLayout l(s);
  return std::max(
      {ForwardScratch(s, l).size, GradInputScratch(s, l).size, GradWeightScratch(s, l).size});
}

template <typename T>
void conv2d_forward(const Conv2dShape& s, const T* x, const T* w, const T* b, T* scratch, T* y) {
  const Conv2dLayout l(s);
  const ForwardScratch parts(s, l);
  const ChainKernel<T>& kernel = chain_kernel<T>();
  const Cover cover(kernel.width, l.out_h, l.out_w, l.cols, l.wide);
  const bool whole_rows = l.out_w % kernel.width == 0;
  const std::int64_t x_image = s.c * l.x_plane;
  const std::int64_t y_image = s.out_c * l.out_plane;
  T* const wide = scratch + parts.wide;
  std::fill_n(scratch, parts.wide, T(0));
  ChainPanel<T> panel;
  panel.rows = s.out_c;
  panel.length = s.c * s.kh * s.kw;
  panel.a = w;
  panel.a_row = panel.length;
  panel.b = scratch;
  panel.b_rows = detail::tap_table(s, l);
  panel.c_row = whole_rows ? l.out_plane : l.wide;
  panel.start = b == nullptr ? ChainStart::kZero : ChainStart::kRowValue;
  panel.row_values = b;
  for (std::int64_t n = 0; n < s.n; n += parts.group) {
    const std::int64_t images = std::min(parts.group, s.n - n);
    const T* const some_x = x + n * s.c * s.h * s.w;
    T* const some_y = y + n * y_image;
    for_each_channel(images, s.c, s.h * s.w, [&](std::int64_t i, std::int64_t c) {
      detail::copy_channel(s, l, some_x + (i * s.c + c) * s.h * s.w,
                           scratch + i * x_image + c * l.x_plane);
    });
    panel.c = whole_rows ? some_y : wide;
    convolve(kernel, cover, panel, images, x_image, whole_rows ? y_image : s.out_c * l.wide);
    if (whole_rows) continue;
    for_each_channel(images, s.out_c, l.out_plane, [&](std::int64_t i, std::int64_t o) {
      const std::int64_t channel = i * s.out_c + o;
      for (std::int64_t row = 0; row < l.out_h; ++row) {
        detail::copy_elements(wide + channel * l.wide + row * l.cols, l.out_w,
                              some_y + channel * l.out_plane + row * l.out_w);
      }
    });
  }
}

template <typename T>
void conv2d_grad_input(const Conv2dShape& s, const T* gy, const T* w, T* scratch, T* gx) {
  const Conv2dLayout l(s);
  const GradInputScratch parts(s, l);
  const ChainKernel<T>& kernel = chain_kernel<T>();
  const std::int64_t gy_image = s.out_c * l.gy_plane;
  const std::int64_t pixels = s.h * s.w;
  T* const wide = scratch + parts.wide;
  T* const weights = scratch + parts.weights;
  std::int64_t* const shifts = detail::offset_table(s.out_c * s.kh * s.kw);
  std::fill_n(scratch, parts.wide, T(0));
  const bool one_phase = s.stride_h == 1 && s.stride_w == 1;
  const bool whole_rows = one_phase && s.w % kernel.width == 0;
  std::int64_t taps = one_phase ? detail::gather_phase(s, l, 0, 0, w, weights, shifts) : 0;
  for (std::int64_t n = 0; n < s.n; n += parts.group) {
    const std::int64_t images = std::min(parts.group, s.n - n);
    const T* const some_gy = gy + n * s.out_c * l.out_plane;
    T* const some_gx = gx + n * s.c * pixels;
    for_each_channel(images, s.out_c, l.out_plane, [&](std::int64_t i, std::int64_t o) {
      detail::copy_gradient(l, some_gy + (i * s.out_c + o) * l.out_plane,
                            scratch + i * gy_image + o * l.gy_plane);
    });
    for (std::int64_t py = 0; py < s.stride_h; ++py) {
      const std::int64_t first = py < s.pad_h ? (s.pad_h - py + s.stride_h - 1) / s.stride_h : 0;
      const std::int64_t y0 = first * s.stride_h + py - s.pad_h;
      const std::int64_t count = y0 < s.h ? (s.h - 1 - y0) / s.stride_h + 1 : 0;
      for (std::int64_t px = 0; px < s.stride_w; ++px) {
        const std::int64_t skip = px < s.pad_w ? (s.pad_w - px + s.stride_w - 1) / s.stride_w : 0;
        const std::int64_t x0 = skip * s.stride_w + px - s.pad_w;
        if (!one_phase) taps = detail::gather_phase(s, l, py, px, w, weights, shifts);
        ChainPanel<T> panel;
        panel.rows = s.c;
        panel.length = s.out_c * taps;
        panel.a = weights;
        panel.a_row = panel.length;
        panel.b = scratch + first * l.cols + (whole_rows ? skip : 0);
        panel.b_rows = shifts;
        panel.c = whole_rows ? some_gx : wide;
        panel.c_row = whole_rows ? pixels : parts.span;
        const Cover cover(kernel.width, whole_rows ? count : 1, whole_rows ? s.w : kernel.width + 1,
                          l.cols, count * l.cols);
        convolve(kernel, cover, panel, images, gy_image, s.c * panel.c_row);
        if (whole_rows) continue;
        for_each_channel(images, s.c, pixels, [&](std::int64_t i, std::int64_t c) {
          const std::int64_t channel = i * s.c + c;
          for (std::int64_t row = 0; row < count; ++row) {
            const T* from = wide + channel * parts.span + row * l.cols + skip;
            T* to = some_gx + channel * pixels + (y0 + row * s.stride_h) * s.w;
            for (std::int64_t ix = x0; ix < s.w; ix += s.stride_w) to[ix] = *from++;
          }
        });
      }
    }
  }
}

template <typename T>
void conv2d_grad_weight(const Conv2dShape& s, const T* gy, const T* x, T* scratch, T* gw) {
  const Conv2dLayout l(s);
  const GradWeightScratch parts(s, l);
  const ChainKernel<T>& kernel = chain_kernel<T>();
  const std::int64_t depth = s.c * s.kh * s.kw;
  const std::int64_t* const taps = detail::tap_table(s, l);
  const std::int64_t x_image = s.c * l.x_plane;
  const std::int64_t gy_image = s.out_c * l.out_plane;
  // Output channels side by side: a vector of gradients of one tap, then of the next.
  T* const channels_last = scratch + parts.gy;
  T* const gw_columns = scratch + parts.gw;
  std::fill_n(scratch, parts.gy, T(0));
  std::fill_n(gw_columns, depth * s.out_c, T(0));
  const std::int64_t rows = std::max<std::int64_t>(blocks::kConv2dChainOutputs / l.out_w, 1);
  for (std::int64_t n = 0; n < s.n; n += parts.group) {
    const std::int64_t images = std::min(parts.group, s.n - n);
    for_each_channel(images, s.c, s.h * s.w, [&](std::int64_t i, std::int64_t c) {
      detail::copy_channel(s, l, x + ((n + i) * s.c + c) * s.h * s.w,
                           scratch + i * x_image + c * l.x_plane);
    });
    const std::int64_t transpose_grain = kGrain / std::max<std::int64_t>(s.out_c, 1) + 1;
    parallel(images * l.out_plane, transpose_grain, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end;) {
        const std::int64_t image = at / l.out_plane;
        const std::int64_t first = at % l.out_plane;
        const std::int64_t count = std::min(end - at, l.out_plane - first);
        transpose(s.out_c, count, gy + (n + image) * gy_image + first, l.out_plane,
                  channels_last + image * gy_image + first * s.out_c, s.out_c);
        at += count;
      }
    });
    const std::int64_t work = std::max<std::int64_t>(images * gy_image, 1);
    parallel(depth, kProductGrain / work + 1, 12, [&](std::int64_t begin, std::int64_t end) {
      ChainPanel<T> panel;
      panel.rows = end - begin;
      panel.length = l.out_w;
      panel.a_rows = taps + begin;
      panel.a_run = l.cols;
      panel.b_row = s.out_c;
      panel.c_row = s.out_c;
      panel.start = ChainStart::kSum;
      for (std::int64_t i = 0; i < images; ++i) {
        for (std::int64_t row = 0; row < l.out_h; row += rows) {
          panel.runs = std::min(rows, l.out_h - row);
          panel.a = scratch + i * x_image + row * l.cols;
          const T* const from = channels_last + i * gy_image + row * l.out_w * s.out_c;
          for (std::int64_t o = 0; o < s.out_c; o += kernel.columns()) {
            panel.b = from + o;
            panel.c = gw_columns + begin * s.out_c + o;
            panel.set_columns(kernel.width, std::min(kernel.columns(), s.out_c - o));
            kernel.run(panel);
          }
        }
      }
    });
  }
  transpose(depth, s.out_c, gw_columns, s.out_c, gw, depth);
}

template <typename T>
void conv2d_grad_bias(const Conv2dShape& s, const T* gy, T* gb) {
  const std::int64_t plane = s.out_h() * s.out_w();
  if (plane == 1) {
    return column_sums<double>(
        s.n, s.out_c,
        [=](std::int64_t n, std::int64_t o) { return static_cast<double>(gy[n * s.out_c + o]); },
        [=](std::int64_t o, double total) { gb[o] = static_cast<T>(total); });
  }
  const std::int64_t grain = kGrain / std::max<std::int64_t>(s.n * plane, 1) + 1;
  parallel(s.out_c, grain, 1, [=](std::int64_t begin, std::int64_t end) {
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

REMATCH_CONV2D_KERNELS(REMATCH_INSTANTIATE);
REMATCH_INSTANTIATE(conv2d_grad_bias);

}  // namespace rematch::cpu
