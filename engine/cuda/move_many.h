#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

namespace rematch::cuda {

/// A piece of device memory to be written: with the bytes at `from`, or if that is null with those
/// of `pattern` over and over.
struct Move {
  void* to = nullptr;
  const void* from = nullptr;
  std::int64_t bytes = 0;
  std::uint64_t pattern = 0;
};

/// Of one launch: its arguments are limited to 4 KiB.
inline constexpr std::size_t kMoves = 96;

/// Makes at most kMoves moves in one launch. None may write what another one writes or reads. An
/// error is left on CUDA's record, for the next check.
void move_many(std::span<const Move> moves, cudaStream_t on) noexcept;

}  // namespace rematch::cuda
