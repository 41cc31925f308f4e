#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "engine/math/dtype.h"

namespace rematch::cuda {

/// How a piece of memory is written: with the pattern's bytes over and over, with those at `from`,
/// with the values there in another type, or with the sums of them and what it holds.
enum class MoveKind : std::uint8_t { fill, copy, upcast, downcast, add };

/// A piece of device memory to be written. Its address and that of `from` are multiples of their
/// types' sizes.
struct Move {
  MoveKind kind = MoveKind::fill;
  /// Type of the terms of sums.
  DType dtype = DType::float32;
  void* to = nullptr;
  const void* from = nullptr;
  /// At `to`.
  std::int64_t bytes = 0;
  std::uint64_t pattern = 0;

  [[nodiscard]] std::int64_t source_bytes() const {
    if (from == nullptr) return 0;
    return kind == MoveKind::upcast ? bytes / 2 : kind == MoveKind::downcast ? bytes * 2 : bytes;
  }
};

/// Moves of one launch: its arguments are limited to 4 KiB.
inline constexpr std::size_t kMoves = 96;

/// Makes at most kMoves moves in one launch. None may write what another one writes or reads. An
/// error is left on CUDA's record, for the next check.
void move_many(std::span<const Move> moves, cudaStream_t on) noexcept;

}  // namespace rematch::cuda
