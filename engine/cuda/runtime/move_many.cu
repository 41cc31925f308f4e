#include "engine/cuda/runtime/move_many.h"

#include <algorithm>

#include "engine/cuda/runtime/launch.h"
#include "engine/math/bfloat16.h"

namespace rematch::cuda {

namespace {

/// Most moves are of a few hundred bytes.
constexpr int kMoveThreads = 32;
/// Bytes that a thread block writes before another one is worth its start.
constexpr std::int64_t kShare = std::int64_t{16} * 16 * kMoveThreads;

struct Moves {
  unsigned shares;
  Move at[kMoves];
};
static_assert(sizeof(Moves) <= 4096);

using Word = Pack<std::uint64_t, 2>;

__device__ bool is_wide(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

/// f(i) for this thread's share of [first, n).
template <typename F>
__device__ void each(Share share, std::int64_t first, std::int64_t n, const F& f) {
  const std::int64_t step = static_cast<std::int64_t>(share.blocks) * blockDim.x;
  std::int64_t i = first + static_cast<std::int64_t>(share.block) * blockDim.x + threadIdx.x;
  for (; i < n; i += step) f(i);
}

__device__ void write(const Move& move, Share share) {
  const bool fills = move.kind == MoveKind::fill;
  const std::int64_t words = is_wide(move.to) && is_wide(move.from) ? move.bytes / 16 : 0;
  each(share, 0, words, [&](std::int64_t i) {
    static_cast<Word*>(move.to)[i] =
        fills ? Word{move.pattern, move.pattern} : static_cast<const Word*>(move.from)[i];
  });
  each(share, words * 16, move.bytes, [&](std::int64_t i) {
    static_cast<unsigned char*>(move.to)[i] =
        fills ? static_cast<unsigned char>(move.pattern >> (i % 8 * 8))
              : static_cast<const unsigned char*>(move.from)[i];
  });
}

template <typename From, typename To>
__device__ void convert(const Move& move, Share share) {
  each(share, 0, move.bytes / static_cast<std::int64_t>(sizeof(To)), [&](std::int64_t i) {
    static_cast<To*>(move.to)[i] = static_cast<To>(static_cast<const From*>(move.from)[i]);
  });
}

template <typename T>
__device__ void add(const Move& move, Share share) {
  each(share, 0, move.bytes / static_cast<std::int64_t>(sizeof(T)),
       [&](std::int64_t i) { static_cast<T*>(move.to)[i] += static_cast<const T*>(move.from)[i]; });
}

/// Thread blocks k * shares .. (k + 1) * shares - 1 make move k.
__global__ void __launch_bounds__(kMoveThreads) move_kernel(Moves moves) {
  const Move move = moves.at[blockIdx.x / moves.shares];
  const Share share{blockIdx.x % moves.shares, moves.shares};
  switch (move.kind) {
    case MoveKind::fill:
    case MoveKind::copy:
      return write(move, share);
    case MoveKind::upcast:
      return convert<math::BFloat16, float>(move, share);
    case MoveKind::downcast:
      return convert<float, math::BFloat16>(move, share);
    case MoveKind::add:
      break;
  }
  switch (move.dtype) {
    case DType::float64:
      return add<double>(move, share);
    case DType::bfloat16:
      return add<math::BFloat16>(move, share);
    default:
      return add<float>(move, share);
  }
}

}  // namespace

void move_many(std::span<const Move> moves, cudaStream_t on) noexcept {
  if (moves.empty()) return;
  Moves all{};
  std::int64_t longest = 0;
  for (const Move& move : moves) longest = std::max(longest, move.bytes);
  std::copy(moves.begin(), moves.end(), all.at);
  all.shares = grid_for(std::max<std::int64_t>(longest, 1), kShare);
  const unsigned blocks = all.shares * static_cast<unsigned>(moves.size());
  move_kernel<<<blocks, kMoveThreads, 0, on>>>(all);
  count_kernel();
}

}  // namespace rematch::cuda
