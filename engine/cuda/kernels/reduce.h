#pragma once

// Sums in the order of LaneSum (engine/cpu/reduce.h): one half-warp is the 16 lanes of a block of
// 1024 elements, and a warp adds the blocks' sums as a math::GroupedSum, or where they are many a
// warp each group and then one the groups. The order, and so the bits, are the CPU's for every
// size; the error bound stands in engine/math/lane_order.h. The order never depends on the grid or
// the card. Included by .cu files alone.

#include <cstdint>

#include "engine/cuda/runtime/launch.h"
#include "engine/math/elementary.h"
#include "engine/math/lane_order.h"

namespace rematch::cuda {

/// Two sums that one pass over the data makes side by side.
template <typename T>
struct Two {
  T a{};
  T b{};
  REMATCH_HD Two& operator+=(const Two& other) {
    a += other.a;
    b += other.b;
    return *this;
  }
};

/// A sum of V's in double.
template <typename V>
struct WideOf {
  using Type = double;
  __device__ static Type from(V value) { return static_cast<double>(value); }
};
template <typename T>
struct WideOf<Two<T>> {
  using Type = Two<double>;
  __device__ static Type from(const Two<T>& value) {
    return {static_cast<double>(value.a), static_cast<double>(value.b)};
  }
};
template <typename V>
using Wide = typename WideOf<V>::Type;

inline constexpr int kHalfWarp = 16;
static_assert(kHalfWarp == math::kSumLanes);

namespace detail {

/// The threads of this thread's half-warp. Halves may part ways at the end of the rows.
__device__ inline unsigned half_warp_mask() { return 0xffffU << (threadIdx.x & 16U); }

template <typename T>
__device__ T from_above(T value, int distance) {
  return __shfl_down_sync(half_warp_mask(), value, distance, kHalfWarp);
}
template <typename T>
__device__ Two<T> from_above(const Two<T>& value, int distance) {
  return {from_above(value.a, distance), from_above(value.b, distance)};
}
template <typename T>
__device__ T from_first(T value) {
  return __shfl_sync(half_warp_mask(), value, 0, kHalfWarp);
}
template <typename T>
__device__ Two<T> from_first(const Two<T>& value) {
  return {from_first(value.a), from_first(value.b)};
}

/// The lanes' sum as LaneSum's tree adds it, in all 16 threads.
template <typename V>
__device__ V tree_sum(V lane) {
#pragma unroll
  for (int half = kHalfWarp / 2; half > 0; half /= 2) lane += from_above(lane, half);
  return from_first(lane);
}

template <typename T>
__device__ T larger(T top, T x) {
  return x > top ? x : top;
}

}  // namespace detail

/// A row of at most 1024 elements in the hands of a half-warp.
struct HalfWarpRow {
  static constexpr int kBlockThreads = kThreads;

  __device__ static std::int64_t row_threads() { return kHalfWarp; }
  __device__ static std::int64_t lane() { return threadIdx.x % kHalfWarp; }
  __device__ static bool leads() { return lane() == 0; }

  template <typename F>
  __device__ static void each(std::int64_t cols, const F& f) {
    for (std::int64_t i = lane(); i < cols; i += kHalfWarp) f(i);
  }

  /// LaneSum of value(0) .. value(cols - 1), in all threads of the row. All of them see what
  /// value() writes on the way, too.
  template <typename V, typename Value>
  __device__ static Wide<V> sum(std::int64_t cols, const Value& value) {
    const V block = detail::tree_sum(math::lane_chain(V{}, 0, cols, lane(), value));
    __syncwarp(detail::half_warp_mask());
    return WideOf<V>::from(block);
  }

  /// The largest element, ignoring NaN; -inf for none.
  template <typename T>
  __device__ static T max(std::int64_t cols, const T* x) {
    T top = -math::detail::kInfinity<T>;
    REMATCH_UNROLL
    for (std::int64_t i = lane(); i < cols; i += kHalfWarp) top = detail::larger(top, x[i]);
#pragma unroll
    for (int half = kHalfWarp / 2; half > 0; half /= 2) {
      top = detail::larger(top, __shfl_xor_sync(detail::half_warp_mask(), top, half, kHalfWarp));
    }
    return top;
  }
};

/// A longer row in the hands of a thread block: its half-warps take a block of 1024 each. There
/// may be fewer threads, so that none is left without a block of 1024.
struct BlockRow {
  static constexpr int kBlockThreads = 512;
  static constexpr int kMostHalves = kBlockThreads / kHalfWarp;

  __device__ static std::int64_t row_threads() { return blockDim.x; }
  __device__ static bool leads() { return threadIdx.x == 0; }

  template <typename F>
  __device__ static void each(std::int64_t cols, const F& f) {
    for (std::int64_t i = threadIdx.x; i < cols; i += blockDim.x) f(i);
  }

  /// As HalfWarpRow's.
  template <typename V, typename Value>
  __device__ static Wide<V> sum(std::int64_t cols, const Value& value) {
    return sum_blocks<V>(
        math::ceil_div(cols, math::kSumBlock), [&](std::int64_t block, std::int64_t lane) {
          const std::int64_t first = block * math::kSumBlock;
          const std::int64_t last = first + math::kSumBlock < cols ? first + math::kSumBlock : cols;
          return math::lane_chain(V{}, first, last, lane, value);
        });
  }

  /// The sum of so many blocks, of which lane_of(block, lane) is what a lane holds at the end.
  template <typename V, typename LaneOf>
  __device__ static Wide<V> sum_blocks(std::int64_t blocks, const LaneOf& lane_of) {
    __shared__ V sums[kMostHalves];
    const std::int64_t half = threadIdx.x / kHalfWarp;
    const std::int64_t halves = blockDim.x / kHalfWarp;
    math::GroupedSum<Wide<V>> total;
    for (std::int64_t base = 0; base < blocks; base += halves) {
      if (base + half < blocks) {
        const V block = detail::tree_sum(lane_of(base + half, threadIdx.x % kHalfWarp));
        if (threadIdx.x % kHalfWarp == 0) sums[half] = block;
      }
      __syncthreads();
      for (std::int64_t j = 0; j < halves && base + j < blocks; ++j) {
        total.add(WideOf<V>::from(sums[j]));
      }
      // The next round, and the next call, overwrite sums.
      __syncthreads();
    }
    return total.total();
  }

  /// As HalfWarpRow's.
  template <typename T>
  __device__ static T max(std::int64_t cols, const T* x) {
    __shared__ T tops[kBlockThreads / 32];
    T top = -math::detail::kInfinity<T>;
    REMATCH_UNROLL
    for (std::int64_t i = threadIdx.x; i < cols; i += blockDim.x) {
      top = detail::larger(top, x[i]);
    }
#pragma unroll
    for (int half = 16; half > 0; half /= 2) {
      top = detail::larger(top, __shfl_xor_sync(0xffffffffU, top, half));
    }
    if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
    __syncthreads();
    top = tops[0];
    for (unsigned w = 1; w < blockDim.x / 32; ++w) top = detail::larger(top, tops[w]);
    __syncthreads();
    return top;
  }
};

/// Calls work(row) for this thread's rows of [0, rows).
template <typename Row, typename Work>
__device__ void for_each_row(std::int64_t rows, const Work& work) {
  const std::int64_t step = global_threads() / Row::row_threads();
  for (std::int64_t r = global_thread() / Row::row_threads(); r < rows; r += step) work(r);
}

/// Threads for a row of `cols` (> kSumBlock): a half-warp a block of 1024 where there are rows
/// enough to fill a card, else the most, for what is done element by element.
inline int block_row_threads(std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kMany = 512;
  constexpr std::int64_t kMost = BlockRow::kBlockThreads;
  if (rows < kMany) return BlockRow::kBlockThreads;
  const std::int64_t warps = math::ceil_div(math::ceil_div(cols, math::kSumBlock), 2);
  return static_cast<int>(32 * warps < kMost ? 32 * warps : kMost);
}

/// Calls launch(Row{}, blocks, threads) with the kind of row that `cols` asks for.
template <typename Launch>
void with_row(std::int64_t rows, std::int64_t cols, const Launch& launch) {
  if (cols <= math::kSumBlock) {
    launch(HalfWarpRow{}, grid_for(rows, kThreads / kHalfWarp), kThreads);
  } else {
    launch(BlockRow{}, grid_for(rows, 1), block_row_threads(rows, cols));
  }
}

namespace detail {

/// in[0] + in[stride] + ... in ascending order, `count` of them, in all threads of the warp.
__device__ inline double ascending_sum(const double* in, std::int64_t count, std::int64_t stride) {
  const int lane = threadIdx.x % 32;
  double total = 0;
  double next = lane < count ? in[lane * stride] : 0.0;
  for (std::int64_t base = 0; base < count; base += 32) {
    const double mine = next;
    // Fetched early: the chain below takes as long as the fetch.
    next = base + 32 + lane < count ? in[(base + 32 + lane) * stride] : 0.0;
    if (count - base >= 32) {
#pragma unroll
      for (int j = 0; j < 32; ++j) total += __shfl_sync(0xffffffffU, mine, j);
    } else {
      // Most often the only round, and a short one.
      const int rest = static_cast<int>(count - base);
      for (int j = 0; j < rest; ++j) total += __shfl_sync(0xffffffffU, mine, j);
    }
  }
  return total;
}

/// Puts the sum of each group of a GroupedSum where its first term was.
template <int kWarp>
__global__ void __launch_bounds__(kThreads)
    group_sums_kernel(std::int64_t items, std::int64_t count, double* partial) {
  const std::int64_t groups = math::ceil_div(count, math::kSumGroup);
  const std::int64_t step = global_threads() / kWarp;
  for (std::int64_t id = global_thread() / kWarp; id < items * groups; id += step) {
    const std::int64_t item = math::quotient(id, groups);
    const std::int64_t first = (id - item * groups) * math::kSumGroup;
    const std::int64_t left = count - first;
    double* in = partial + item * count + first;
    const double sum = ascending_sum(in, left < math::kSumGroup ? left : math::kSumGroup, 1);
    // Every lane's terms have been taken by then.
    if (threadIdx.x % kWarp == 0) *in = sum;
  }
}

/// Adds `count` terms an item, each `stride` after the other.
template <typename Finish>
__global__ void __launch_bounds__(kThreads)
    totals_kernel(std::int64_t items, std::int64_t count, std::int64_t stride,
                  std::int64_t item_stride, const double* partial, Finish finish) {
  const std::int64_t step = global_threads() / 32;
  for (std::int64_t item = global_thread() / 32; item < items; item += step) {
    const double total = ascending_sum(partial + item * item_stride, count, stride);
    if (threadIdx.x % 32 == 0) finish(item, total);
  }
}

template <typename T, typename Value>
__global__ void __launch_bounds__(kThreads)
    block_sums_kernel(std::int64_t n, Value value, double* partial) {
  const std::int64_t blocks = math::ceil_div(n, math::kSumBlock);
  const std::int64_t step = global_threads() / kHalfWarp;
  for (std::int64_t b = global_thread() / kHalfWarp; b < blocks; b += step) {
    const std::int64_t first = b * math::kSumBlock;
    const std::int64_t last = first + math::kSumBlock < n ? first + math::kSumBlock : n;
    const T sum = tree_sum(math::lane_chain(T(0), first, last, threadIdx.x % kHalfWarp, value));
    if (threadIdx.x % kHalfWarp == 0) partial[b] = static_cast<double>(sum);
  }
}

// Where there is one partial sum, its half-warp or thread is the one to finish. From 0 on, as
// ascending_sum() begins: a sum of -0 is 0.

template <typename T, typename Value, typename Finish>
__global__ void one_block_kernel(std::int64_t n, Value value, Finish finish) {
  const T sum = tree_sum(
      math::lane_chain(T(0), std::int64_t{0}, n, static_cast<std::int64_t>(threadIdx.x), value));
  if (threadIdx.x == 0) finish(std::int64_t{0}, 0.0 + static_cast<double>(sum));
}

template <int kSums, typename Sum, typename Value, typename Finish>
__global__ void __launch_bounds__(kThreads)
    one_chunk_kernel(std::int64_t rows, std::int64_t cols, Value value, Finish finish) {
  for (std::int64_t col = global_thread(); col < cols; col += global_threads()) {
    Sum sums[kSums] = {};
    REMATCH_UNROLL
    for (std::int64_t r = 0; r < rows; ++r) value(r, col, sums);
#pragma unroll
    for (int k = 0; k < kSums; ++k) finish(k * cols + col, 0.0 + static_cast<double>(sums[k]));
  }
}

/// Thread (chunk, col) calls value(row, col, sums) for the rows of its chunk in ascending order.
template <int kSums, typename Sum, typename Value>
__global__ void __launch_bounds__(kThreads)
    column_chunks_kernel(std::int64_t rows, std::int64_t cols, Value value, double* partial) {
  const std::int64_t chunks = math::ceil_div(rows, math::kChunkRows);
  for (std::int64_t id = global_thread(); id < chunks * cols; id += global_threads()) {
    const std::int64_t chunk = math::quotient(id, cols);
    const std::int64_t col = id - chunk * cols;
    const std::int64_t first = chunk * math::kChunkRows;
    const std::int64_t last = first + math::kChunkRows < rows ? first + math::kChunkRows : rows;
    Sum sums[kSums] = {};
    REMATCH_UNROLL
    for (std::int64_t r = first; r < last; ++r) value(r, col, sums);
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      partial[(k * cols + col) * chunks + chunk] = static_cast<double>(sums[k]);
    }
  }
}

}  // namespace detail

/// The doubles of scratch that `count` of them take.
inline double* scratch_doubles(std::int64_t count) {
  return static_cast<double*>(workspace(static_cast<std::size_t>(count) * sizeof(double)));
}

/// finish(item, total) for each of `items` runs of `count` partial sums, added as a GroupedSum;
/// where there are several groups, `partial` is written to.
template <typename Finish>
void totals(const char* kernel, std::int64_t items, std::int64_t count, double* partial,
            const Finish& finish) {
  if (items <= 0) return;
  std::int64_t terms = count;
  std::int64_t stride = 1;
  if (count > math::kSumGroup) {
    terms = math::ceil_div(count, math::kSumGroup);
    stride = math::kSumGroup;
    detail::group_sums_kernel<32>
        <<<grid_for(items * terms, kThreads / 32), kThreads, 0, stream()>>>(items, count, partial);
    check_launch(kernel);
  }
  detail::totals_kernel<<<grid_for(items, kThreads / 32), kThreads, 0, stream()>>>(
      items, terms, stride, count, partial, finish);
  check_launch(kernel);
}

/// finish(0, the LaneSum of value(0) .. value(n - 1)).
template <typename T, typename Value, typename Finish>
void lane_sum(const char* kernel, std::int64_t n, const Value& value, const Finish& finish) {
  const std::int64_t blocks = math::ceil_div(n, math::kSumBlock);
  if (blocks == 1) {
    detail::one_block_kernel<T><<<1, kHalfWarp, 0, stream()>>>(n, value, finish);
    return check_launch(kernel);
  }
  double* partial = scratch_doubles(blocks);
  if (n > 0) {
    detail::block_sums_kernel<T>
        <<<grid_for(blocks, kThreads / kHalfWarp), kThreads, 0, stream()>>>(n, value, partial);
    check_launch(kernel);
  }
  totals(kernel, 1, blocks, partial, finish);
}

/// The doubles of scratch that column_sums needs.
inline std::int64_t column_scratch(std::int64_t rows, std::int64_t cols, int sums) {
  return math::ceil_div(rows, math::kChunkRows) * cols * sums;
}

/// kSums sums down each column: value(row, col, Sum (&)[kSums]) adds a row's terms, and
/// finish(k * cols + col, total) takes the k-th total; in chunks of kChunkRows rows, added in Sum
/// within a chunk and in double across (engine/math/lane_order.h).
template <int kSums, typename Sum, typename Value, typename Finish>
void column_sums(const char* kernel, std::int64_t rows, std::int64_t cols, const Value& value,
                 double* partial, const Finish& finish) {
  if (cols <= 0) return;
  const std::int64_t chunks = math::ceil_div(rows, math::kChunkRows);
  if (chunks == 1) {
    detail::one_chunk_kernel<kSums, Sum>
        <<<grid_for(cols), kThreads, 0, stream()>>>(rows, cols, value, finish);
    return check_launch(kernel);
  }
  if (rows > 0) {
    detail::column_chunks_kernel<kSums, Sum>
        <<<grid_for(chunks * cols), kThreads, 0, stream()>>>(rows, cols, value, partial);
    check_launch(kernel);
  }
  totals(kernel, kSums * cols, chunks, partial, finish);
}

}  // namespace rematch::cuda
