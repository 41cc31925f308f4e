#include "engine/cuda/move_many.h"

#include <algorithm>

#include "engine/cuda/launch.h"

namespace rematch::cuda {

namespace {

constexpr int kMoveThreads = 128;
/// What a thread block writes before another one is worth its start.
constexpr std::int64_t kShare = std::int64_t{16} * 16 * kMoveThreads;

struct Moves {
  unsigned shares;
  Move at[kMoves];
};
static_assert(sizeof(Moves) <= 4096);

using Word = Pack<std::uint64_t, 2>;

__device__ bool is_wide(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

/// Thread blocks k * shares .. (k + 1) * shares - 1 make move k.
__global__ void __launch_bounds__(kMoveThreads) move_kernel(Moves moves) {
  const Move move = moves.at[blockIdx.x / moves.shares];
  const std::int64_t self =
      static_cast<std::int64_t>(blockIdx.x % moves.shares) * blockDim.x + threadIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(moves.shares) * blockDim.x;
  const bool fills = move.from == nullptr;
  const std::int64_t words = is_wide(move.to) && is_wide(move.from) ? move.bytes / 16 : 0;
  const auto* const wide_from = static_cast<const Word*>(move.from);
  auto* const wide_to = static_cast<Word*>(move.to);
  for (std::int64_t i = self; i < words; i += step) {
    wide_to[i] = fills ? Word{move.pattern, move.pattern} : wide_from[i];
  }
  const auto* const from = static_cast<const unsigned char*>(move.from);
  auto* const to = static_cast<unsigned char*>(move.to);
  for (std::int64_t i = words * 16 + self; i < move.bytes; i += step) {
    to[i] = fills ? static_cast<unsigned char>(move.pattern >> (i % 8 * 8)) : from[i];
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
  count_call(Backend::kernels);
}

}  // namespace rematch::cuda
