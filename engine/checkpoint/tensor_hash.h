#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/tensor/tensor.h"

namespace rematch {

/// 64-bit hash of bytes: four multiply-and-rotate lanes of 8 bytes. For telling bits apart, not
/// for security.
std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed = 0);

/// Hash over shape, dtype and bits.
std::uint64_t tensor_hash(const Tensor& t);

}  // namespace rematch
