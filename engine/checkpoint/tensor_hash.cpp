#include "engine/checkpoint/tensor_hash.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/memory/ledger.h"

namespace rematch {
namespace {

constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;

__extension__ using Product = unsigned __int128;

/// Both halves of the product. The lower one alone would hand on a change of the highest bit as one
/// bit whatever the rest is, which a change of the next word could always take back.
constexpr std::uint64_t mix(std::uint64_t h, std::uint64_t word) {
  const Product product = static_cast<Product>(h ^ word) * kMultiplier;
  return static_cast<std::uint64_t>(product) ^
         std::rotl(static_cast<std::uint64_t>(product >> 64U), 29);
}

std::uint64_t seed_of(const Tensor& t) {
  std::uint64_t seed = static_cast<std::uint64_t>(t.dtype());
  for (const std::int64_t extent : t.shape().dims()) {
    seed = mix(seed, static_cast<std::uint64_t>(extent));
  }
  return seed;
}

}  // namespace

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::array<std::uint64_t, 4> lanes{seed + 1, seed + 2, seed + 3, seed + 4};
  const std::byte* p = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 32; left -= 32, p += 32) {
    std::array<std::uint64_t, 4> words;
    std::memcpy(words.data(), p, 32);
    for (std::size_t i = 0; i < 4; ++i) lanes[i] = mix(lanes[i], words[i]);
  }
  std::array<std::uint64_t, 4> tail{};
  if (left > 0) std::memcpy(tail.data(), p, left);
  std::uint64_t h = seed;
  for (std::size_t i = 0; i < 4; ++i) h = mix(h, mix(lanes[i], tail[i]));
  // Zeros at the end count by their number alone. At the beginning, a size could be taken for a
  // byte.
  h = mix(h, bytes.size());
  return (h ^ (h >> 32)) * kMultiplier;
}

std::uint64_t tensor_hash(const Tensor& t) {
  const std::uint64_t seed = seed_of(t);
  const auto bytes = static_cast<std::size_t>(t.bytes());
  if (t.device() == Device::cpu) return hash_bytes({t.raw(), bytes}, seed);
  std::vector<std::byte> host(bytes);
  t.copy_to_host(host);
  return hash_bytes(host, seed);
}

void read_hash(const Tensor& t, std::function<void(std::uint64_t)> take) {
  if (t.device() == Device::cpu) return take(tensor_hash(t));
  t.storage()->memory().read(
      t.raw(), t.bytes(),
      [seed = seed_of(t), take = std::move(take)](auto bytes) { take(hash_bytes(bytes, seed)); });
}

void LaterHashes::read(const Tensor& t, std::function<void(std::uint64_t)> take) {
  if (t.device() == Device::cpu) return take(tensor_hash(t));
  const std::shared_ptr<Ledger>& ambient_one = ambient().ledger;
  const bool is_of_another = &t.storage()->memory() != &ambient_one->memory();
  if (is_of_another || (ledger_ != nullptr && ledger_ != ambient_one)) return take(tensor_hash(t));
  ledger_ = ambient_one;
  read_hash(t, std::move(take));
}

void LaterHashes::finish() {
  if (const auto from = std::exchange(ledger_, nullptr)) from->memory().finish_reads();
}

}  // namespace rematch
