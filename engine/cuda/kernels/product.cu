#include "engine/cuda/kernels/product.h"

#include "engine/cuda/runtime/launch.h"
#include "engine/kernels/declare.h"
#include "engine/math/bfloat16.h"

namespace rematch::cuda {

namespace {

using math::BFloat16;

/// The type in which chains add.
template <typename T>
struct SumOf {
  using type = T;
};
template <>
struct SumOf<BFloat16> {
  using type = float;
};

/// A block makes kTile x kTile elements, a thread a square of them, so that it has four chains to
/// advance while one waits. Few threads a block: small products should reach many multiprocessors.
constexpr int kTile = 16;
constexpr int kPerSide = 2;
constexpr int kSide = kTile / kPerSide;
constexpr int kBlock = kSide * kSide;
/// Terms that are brought to shared memory at a time: a warp's width, for loads along the depth.
constexpr int kSlice = 32;
/// A column more than the tile has, so that a warp that stores along the depth meets every bank.
constexpr int kPitch = kTile + 1;

/// Brings elements [first, first + kTile) x [0, count) of a matrix, given at its slice, to
/// slice[depth][element]. Neighbouring threads read neighbouring addresses.
template <typename T, typename Sum>
__device__ void load_slice(const T* from, std::int64_t stride, std::int64_t depth_stride,
                           std::int64_t elements, int count, Sum* slice) {
  const bool along_depth = depth_stride == 1;
#pragma unroll
  for (int i = 0; i < kTile * kSlice / kBlock; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kBlock;
    const int element = along_depth ? at / kSlice : at % kTile;
    const int depth = along_depth ? at % kSlice : at / kTile;
    if (element < elements && depth < count) {
      slice[depth * kPitch + element] =
          static_cast<Sum>(from[element * stride + depth * depth_stride]);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    product_kernel(std::int64_t rows, std::int64_t cols, std::int64_t depth, Strided<T> a,
                   Strided<T> b, const T* bias, T* c) {
  using Sum = typename SumOf<T>::type;
  __shared__ Sum a_slice[kSlice * kPitch];
  __shared__ Sum b_slice[kSlice * kPitch];
  const int my_row = static_cast<int>(threadIdx.x) / kSide;
  const int my_col = static_cast<int>(threadIdx.x) % kSide;
  const std::int64_t across = math::ceil_div(cols, std::int64_t{kTile});
  const std::int64_t tiles = math::ceil_div(rows, std::int64_t{kTile}) * across;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t row0 = tile / across * kTile;
    const std::int64_t col0 = tile % across * kTile;
    Sum sums[kPerSide][kPerSide];
#pragma unroll
    for (int j = 0; j < kPerSide; ++j) {
      const std::int64_t col = col0 + my_col + j * kSide;
      const Sum start = bias != nullptr && col < cols ? static_cast<Sum>(bias[col]) : Sum(0);
#pragma unroll
      for (int i = 0; i < kPerSide; ++i) sums[i][j] = start;
    }
    for (std::int64_t d = 0; d < depth; d += kSlice) {
      // Terms beyond the depth are left out: adding 0 * 0 would turn -0 into 0.
      const int count = static_cast<int>(depth - d < kSlice ? depth - d : kSlice);
      load_slice(a.data + row0 * a.row + d * a.col, a.row, a.col, rows - row0, count, a_slice);
      load_slice(b.data + col0 * b.col + d * b.row, b.col, b.row, cols - col0, count, b_slice);
      __syncthreads();
#pragma unroll 8
      for (int k = 0; k < count; ++k) {
#pragma unroll
        for (int i = 0; i < kPerSide; ++i) {
#pragma unroll
          for (int j = 0; j < kPerSide; ++j) {
            sums[i][j] = fma(a_slice[k * kPitch + my_row + i * kSide],
                             b_slice[k * kPitch + my_col + j * kSide], sums[i][j]);
          }
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kPerSide; ++i) {
#pragma unroll
      for (int j = 0; j < kPerSide; ++j) {
        const std::int64_t row = row0 + my_row + i * kSide;
        const std::int64_t col = col0 + my_col + j * kSide;
        if (row < rows && col < cols) c[row * cols + col] = static_cast<T>(sums[i][j]);
      }
    }
  }
}

}  // namespace

template <typename T>
void product(std::int64_t rows, std::int64_t cols, std::int64_t depth, const Strided<T>& a,
             const Strided<T>& b, const T* bias, T* c) {
  const std::int64_t tiles =
      math::ceil_div(rows, std::int64_t{kTile}) * math::ceil_div(cols, std::int64_t{kTile});
  if (tiles == 0) return;
  product_kernel<<<grid_for(tiles, 1), kBlock, 0, stream()>>>(rows, cols, depth, a, b, bias, c);
  check_launch("product");
}

REMATCH_INSTANTIATE(product);
REMATCH_INSTANTIATE_BFLOAT16(product);

}  // namespace rematch::cuda
