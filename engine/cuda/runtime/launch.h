#pragma once

// How element-wise kernels visit arrays. Included by .cu files alone.

#include <cstdint>

#include "engine/cuda/runtime/stream.h"
#include "engine/math/lane_order.h"

namespace rematch::cuda {

inline constexpr int kThreads = 256;
/// Enough blocks for any card, few enough that starting them costs nothing; longer work is strided.
inline constexpr std::int64_t kMaxBlocks = 8192;

/// Blocks of `threads` for `items` (> 0) items, one a thread.
inline unsigned grid_for(std::int64_t items, std::int64_t threads = kThreads) {
  const std::int64_t blocks = math::ceil_div(items, threads);
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

/// This thread's number in the grid, and how many there are.
__device__ inline std::int64_t global_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t global_threads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

/// Arrays that a visit reads, writes, or both.
template <typename T>
struct In {
  const T* data;
};
template <typename T>
struct Out {
  T* data;
};
template <typename T>
struct InOut {
  T* data;
};

/// kWidth elements that move in one instruction.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];
};

namespace detail {

template <typename T, int kWidth>
__device__ Pack<T, kWidth> load(In<T> from, std::int64_t pack) {
  return reinterpret_cast<const Pack<T, kWidth>*>(from.data)[pack];
}
template <typename T, int kWidth>
__device__ Pack<T, kWidth> load(InOut<T> from, std::int64_t pack) {
  return reinterpret_cast<const Pack<T, kWidth>*>(from.data)[pack];
}
template <typename T, int kWidth>
__device__ Pack<T, kWidth> load(Out<T> /*to*/, std::int64_t /*pack*/) {
  return {};
}

template <typename T, int kWidth>
__device__ void store(In<T> /*from*/, std::int64_t /*pack*/, const Pack<T, kWidth>& /*value*/) {}
template <typename T, int kWidth>
__device__ void store(InOut<T> to, std::int64_t pack, const Pack<T, kWidth>& value) {
  reinterpret_cast<Pack<T, kWidth>*>(to.data)[pack] = value;
}
template <typename T, int kWidth>
__device__ void store(Out<T> to, std::int64_t pack, const Pack<T, kWidth>& value) {
  reinterpret_cast<Pack<T, kWidth>*>(to.data)[pack] = value;
}

template <typename Array, typename P>
struct Loaded {
  Array array;
  P value;
};
template <int kWidth, typename T, template <typename> class Array>
__device__ Loaded<Array<T>, Pack<T, kWidth>> loaded(Array<T> array, std::int64_t pack) {
  return {array, load<T, kWidth>(array, pack)};
}

/// f(first, ...), f(first + advance, ...), ... on the elements of a pack, then the stores.
template <int kWidth, typename F, typename Index, typename... Packs>
__device__ void visit_loaded(const F& f, std::int64_t pack, Index first, int advance,
                             Packs... packs) {
  // Every input of the pack is in registers before an output is written, so they may be the same.
#pragma unroll
  for (int k = 0; k < kWidth; ++k) f(first + k * advance, packs.value.at[k]...);
  (store(packs.array, pack, packs.value), ...);
}

}  // namespace detail

/// The part of a visit that thread block `block` of `blocks` does.
struct Share {
  unsigned block;
  unsigned blocks;
};
template <int kWidth, typename F, typename... Arrays>
__device__ void visit_share(std::int64_t n, Share share, const F& f, Arrays... arrays) {
  using namespace detail;
  const std::int64_t packs = n / kWidth;
  const std::int64_t self = static_cast<std::int64_t>(share.block) * blockDim.x + threadIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(share.blocks) * blockDim.x;
  for (std::int64_t p = self; p < packs; p += step) {
    visit_loaded<kWidth>(f, p, p * kWidth, 1, loaded<kWidth>(arrays, p)...);
  }
  if constexpr (kWidth > 1) {
    for (std::int64_t i = packs * kWidth + self; i < n; i += step) {
      visit_loaded<1>(f, i, i, 1, loaded<1>(arrays, i)...);
    }
  }
}

namespace detail {

template <int kWidth, typename F, typename... Arrays>
__global__ void __launch_bounds__(kThreads) visit_kernel(std::int64_t n, F f, Arrays... arrays) {
  visit_share<kWidth>(n, Share{blockIdx.x, gridDim.x}, f, arrays...);
}

template <int kWidth, typename T, template <typename> class Array>
bool aligned(Array<T> array) {
  return reinterpret_cast<std::uintptr_t>(array.data) % (sizeof(T) * kWidth) == 0;
}

}  // namespace detail

/// Whether kWidth elements of each array can move in one instruction.
template <int kWidth, typename... T>
bool aligned(const T*... arrays) {
  return (detail::aligned<kWidth>(In<T>{arrays}) && ...);
}

/// Elements of T in 128 bits, the widest move.
template <typename T>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(T));

/// Runs f(i, element i of each array by reference) for i in [0, n): kWidth elements a step when
/// every array is aligned to kWidth of its own, else one. An output may be one of the inputs.
template <int kWidth, typename F, typename... Arrays>
void visit(const char* kernel, std::int64_t n, const F& f, Arrays... arrays) {
  if (n <= 0) return;
  if ((detail::aligned<kWidth>(arrays) && ...)) {
    detail::visit_kernel<kWidth>
        <<<grid_for(math::ceil_div(n, kWidth)), kThreads, 0, stream()>>>(n, f, arrays...);
  } else {
    detail::visit_kernel<1><<<grid_for(n), kThreads, 0, stream()>>>(n, f, arrays...);
  }
  check_launch(kernel);
}

}  // namespace rematch::cuda
