#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "engine/tensor/tensor.h"

namespace rematch {

/// 64-bit hash of bytes: four multiply-and-rotate lanes of 8 bytes. For telling bits apart, not
/// for security.
std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed = 0);

/// Hash over shape, dtype and bits.
std::uint64_t tensor_hash(const Tensor& t);
/// Hands it to `take`: at once, or for a device by the end of MemoryResource::finish_reads().
void read_hash(const Tensor& t, std::function<void(std::uint64_t)> take);

/// Hashes of tensors on a device, which are brought over together.
class LaterHashes {
 public:
  /// Hands the hash of `t` as it is now to `take`: by the end of finish(), or at once on the host
  /// and for a tensor that is not of the same ledger as the others, the ambient one.
  void read(const Tensor& t, std::function<void(std::uint64_t)> take);
  void finish();

 private:
  /// Ledger of those that are still to come.
  std::shared_ptr<Ledger> ledger_;
};

}  // namespace rematch
