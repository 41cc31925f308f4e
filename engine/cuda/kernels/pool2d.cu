#include "engine/kernels/pool2d.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "engine/cuda/runtime/launch.h"
#include "engine/math/elementary.h"
#include "engine/math/window.h"

namespace rematch::cuda {

namespace {

template <typename Index>
struct Pooling {
  math::WindowAxis<Index> rows;
  math::WindowAxis<Index> cols;
  Index area;
};

template <typename Index>
Pooling<Index> pooling(const Pool2dShape& s) {
  const auto axis = [](std::int64_t size, std::int64_t out, std::int64_t kernel,
                       std::int64_t stride, std::int64_t pad) {
    return math::WindowAxis<Index>{static_cast<Index>(size), static_cast<Index>(out),
                                   static_cast<Index>(kernel), static_cast<Index>(stride),
                                   static_cast<Index>(pad)};
  };
  return {axis(s.h, s.out_h(), s.kh, s.stride_h, s.pad_h),
          axis(s.w, s.out_w(), s.kw, s.stride_w, s.pad_w), static_cast<Index>(s.kh * s.kw)};
}

/// Calls use(plane, row, column, position) for this thread's share of [planes, height, width].
template <typename Index, typename Use>
__device__ void for_each_pixel(std::int64_t planes, Index height, Index width, const Use& use) {
  const std::int64_t n = planes * height * width;
  for (std::int64_t at = global_thread(); at < n; at += global_threads()) {
    const Index row = static_cast<Index>(at) / width;
    const Index plane = row / height;
    use(plane, row - plane * height, static_cast<Index>(at) - row * width, at);
  }
}

template <typename Index, typename T>
__global__ void __launch_bounds__(kThreads)
    max_forward_kernel(std::int64_t planes, Pooling<Index> p, const T* x, T* y,
                       std::int32_t* indices) {
  for_each_pixel<Index>(
      planes, p.rows.out, p.cols.out, [=](Index plane, Index oy, Index ox, std::int64_t at) {
        const math::Range<Index> rows = p.rows.inputs_of(oy);
        const math::Range<Index> cols = p.cols.inputs_of(ox);
        const T* from = x + static_cast<std::int64_t>(plane) * p.rows.size * p.cols.size;
        T best = -math::detail::kInfinity<T>;
        Index index = rows.begin * p.cols.size + cols.begin;
        for (Index row = rows.begin; row < rows.end; ++row) {
          for (Index col = cols.begin; col < cols.end; ++col) {
            const T value = from[row * p.cols.size + col];
            const bool better = (value > best) | (value != value);
            index = better ? row * p.cols.size + col : index;
            best = better ? value : best;
          }
        }
        y[at] = best;
        indices[at] = static_cast<std::int32_t>(index);
      });
}

template <typename Index, typename T>
__global__ void __launch_bounds__(kThreads)
    max_backward_kernel(std::int64_t planes, Pooling<Index> p, const T* gy,
                        const std::int32_t* indices, T* gx) {
  for_each_pixel<Index>(
      planes, p.rows.size, p.cols.size, [=](Index plane, Index row, Index col, std::int64_t at) {
        const math::Range<Index> oy = p.rows.windows_of(row);
        const math::Range<Index> ox = p.cols.windows_of(col);
        const std::int64_t base = static_cast<std::int64_t>(plane) * p.rows.out * p.cols.out;
        const auto here = static_cast<std::int32_t>(row * p.cols.size + col);
        T sum = 0;
        for (Index v = oy.begin; v < oy.end; ++v) {
          for (Index u = ox.begin; u < ox.end; ++u) {
            const std::int64_t o = base + v * p.cols.out + u;
            if (indices[o] == here) sum += gy[o];
          }
        }
        gx[at] = sum;
      });
}

template <typename Index, typename T>
__global__ void __launch_bounds__(kThreads)
    avg_forward_kernel(std::int64_t planes, Pooling<Index> p, const T* x, T* y) {
  for_each_pixel<Index>(
      planes, p.rows.out, p.cols.out, [=](Index plane, Index oy, Index ox, std::int64_t at) {
        const math::Range<Index> rows = p.rows.inputs_of(oy);
        const math::Range<Index> cols = p.cols.inputs_of(ox);
        const T* from = x + static_cast<std::int64_t>(plane) * p.rows.size * p.cols.size;
        T sum = 0;
        for (Index row = rows.begin; row < rows.end; ++row) {
          for (Index col = cols.begin; col < cols.end; ++col) sum += from[row * p.cols.size + col];
        }
        y[at] = sum / static_cast<T>(p.area);
      });
}

template <typename Index, typename T>
__global__ void __launch_bounds__(kThreads)
    avg_backward_kernel(std::int64_t planes, Pooling<Index> p, const T* gy, T* gx) {
  for_each_pixel<Index>(
      planes, p.rows.size, p.cols.size, [=](Index plane, Index row, Index col, std::int64_t at) {
        const math::Range<Index> oy = p.rows.windows_of(row);
        const math::Range<Index> ox = p.cols.windows_of(col);
        const std::int64_t base = static_cast<std::int64_t>(plane) * p.rows.out * p.cols.out;
        const T area = static_cast<T>(p.area);
        T sum = 0;
        for (Index v = oy.begin; v < oy.end; ++v) {
          for (Index u = ox.begin; u < ox.end; ++u) sum += gy[base + v * p.cols.out + u] / area;
        }
        gx[at] = sum;
      });
}

/// Calls launch(pooling with the index type that the sizes need, planes, inputs, outputs).
template <typename Launch>
void with_index(const Pool2dShape& s, const Launch& launch) {
  const std::int64_t planes = s.n * s.c;
  const std::int64_t inputs = planes * s.h * s.w;
  const std::int64_t outputs = planes * s.out_h() * s.out_w();
  // Division of 32 bits is many times faster than of 64. A window reaches at most a kernel past the
  // padded image.
  const std::int64_t reach = std::max(
      {s.h + 2 * s.pad_h + s.kh, s.w + 2 * s.pad_w + s.kw, s.stride_h, s.stride_w, s.kh * s.kw});
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
  if (std::max({inputs, outputs, reach}) <= kLimit) {
    launch(pooling<std::int32_t>(s), planes, inputs, outputs);
  } else {
    launch(pooling<std::int64_t>(s), planes, inputs, outputs);
  }
}

}  // namespace

template <typename T>
void max_pool2d_forward(const Pool2dShape& shape, const T* x, T* y, std::int32_t* indices) {
  with_index(shape, [=](auto p, std::int64_t planes, std::int64_t, std::int64_t outputs) {
    if (outputs <= 0) return;
    max_forward_kernel<<<grid_for(outputs), kThreads, 0, stream()>>>(planes, p, x, y, indices);
    check_launch("max_pool2d_forward");
  });
}

template <typename T>
void max_pool2d_backward(const Pool2dShape& shape, const T* gy, const std::int32_t* indices,
                         T* gx) {
  with_index(shape, [=](auto p, std::int64_t planes, std::int64_t inputs, std::int64_t) {
    if (inputs <= 0) return;
    max_backward_kernel<<<grid_for(inputs), kThreads, 0, stream()>>>(planes, p, gy, indices, gx);
    check_launch("max_pool2d_backward");
  });
}

template <typename T>
void avg_pool2d_forward(const Pool2dShape& shape, const T* x, T* y) {
  with_index(shape, [=](auto p, std::int64_t planes, std::int64_t, std::int64_t outputs) {
    if (outputs <= 0) return;
    avg_forward_kernel<<<grid_for(outputs), kThreads, 0, stream()>>>(planes, p, x, y);
    check_launch("avg_pool2d_forward");
  });
}

template <typename T>
void avg_pool2d_backward(const Pool2dShape& shape, const T* gy, T* gx) {
  with_index(shape, [=](auto p, std::int64_t planes, std::int64_t inputs, std::int64_t) {
    if (inputs <= 0) return;
    avg_backward_kernel<<<grid_for(inputs), kThreads, 0, stream()>>>(planes, p, gy, gx);
    check_launch("avg_pool2d_backward");
  });
}

REMATCH_POOL2D_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
