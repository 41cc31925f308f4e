// Tensors of megabytes: hashed, copied and recomputed whole.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <optional>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/tensor_hash.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/testing/offload_fixture.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::LedgerScope;
using testing::OffloadFixture;
using testing::same_bits;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
/// Neither a multiple of a block nor of a word.
constexpr std::int64_t kBytes = 3 * kMiB + 13;

/// Bytes that do not repeat where a block of a power of two does.
Tensor many_bytes() {
  Tensor t = Tensor::empty({kBytes}, DType::uint8);
  for (std::int64_t i = 0; i < kBytes; ++i) {
    t.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i % 251 + i / 65536);
  }
  return t;
}

/// Both ends, and around every boundary of 64 KiB.
std::vector<std::int64_t> places() {
  std::vector<std::int64_t> all{0, kBytes - 1};
  for (std::int64_t edge = 65536; edge < kBytes; edge += 65536) {
    all.insert(all.end(), {edge - 1, edge, edge + 1});
  }
  return all;
}

/// Elements of more than a megabyte in every floating dtype.
constexpr std::int64_t kElements = kMiB / 2 + 65537;

Tensor wave(DType dtype) {
  Tensor t = Tensor::empty({kElements}, DType::float64);
  for (std::int64_t i = 0; i < kElements; ++i) {
    t.data<double>()[i] = static_cast<double>(i % 1021 - 510) / 512;
  }
  if (dtype == DType::float64) return t;
  return Tensor::from(t.to_vector(), t.shape(), dtype);
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "the hash of a tensor of megabytes depends on all of it") {
  Tensor t = many_bytes();
  const std::uint64_t hash = tensor_hash(t);
  CHECK(hash == tensor_hash(t.clone()));
  for (const std::int64_t i : places()) {
    t.data<std::uint8_t>()[i] ^= 16;
    if (tensor_hash(t) == hash) FAIL("byte " << i << " is not in it");
    t.data<std::uint8_t>()[i] ^= 16;
  }
  // Parts of a power of two that change places.
  for (std::int64_t part = 4096; part <= kMiB; part *= 2) {
    const Tensor moved = t.clone();
    std::swap_ranges(moved.raw(), moved.raw() + part, moved.raw() + part);
    if (tensor_hash(moved) == hash) FAIL("parts of " << part << " may change places");
  }
}

TEST_CASE_METHOD(LedgerScope, "a tensor of megabytes is copied whole") {
  const Tensor t = many_bytes();
  std::vector<std::byte> host(static_cast<std::size_t>(kBytes));
  t.copy_to_host(host);
  CHECK(std::memcmp(host.data(), t.raw(), host.size()) == 0);
  CHECK(same_bits(t.clone(), t));
  Tensor other = Tensor::zeros({kBytes}, DType::uint8);
  other.copy_from_host(host);
  CHECK(same_bits(other, t));
  const std::vector<double> wide = t.to_vector();
  CHECK(std::equal(wide.begin(), wide.end(), t.data<std::uint8_t>()));
  for (const std::int64_t i : places()) {
    CHECK(t.at(i) == wide[static_cast<std::size_t>(i)]);
    other.data<std::uint8_t>()[i] ^= 1;
    CHECK_FALSE(same_bits(other, t));
    other.data<std::uint8_t>()[i] ^= 1;
  }
}

TEST_CASE_METHOD(LedgerScope, "a saved tensor of megabytes is compared to its last element") {
  std::int64_t changed = 0;
  const Function f = [&](const Tensors& in) -> Tensors {
    Tensor c = Tensor::ones({kElements}, DType::float32);
    if (ambient().recomputing) c.data<float>()[changed] = 2;
    return {mul(in[0], c)};
  };
  const Tensor x = wave(DType::float32).set_requires_grad(true);
  const Tensor y = sum(checkpoint(f, {x}, {.determinism = DeterminismCheck::values})[0]);
  for (const std::int64_t i : {std::int64_t{0}, std::int64_t{16384}, kMiB / 4 - 1, kMiB / 4,
                               kMiB / 2 - 1, kMiB / 2, kElements - 1}) {
    CAPTURE(i);
    changed = i;
    CHECK_THROWS_WITH(backward(y, {.retain_graph = true}), ContainsSubstring("the bits of saved"));
  }
}

TEST_CASE_METHOD(OffloadFixture, "tensors of megabytes train as the plain run does") {
  const DType dtype = GENERATE(DType::float32, DType::float64, DType::bfloat16);
  enum class Way { non_reentrant, reentrant, policy, offloaded };
  const Way way = GENERATE(Way::non_reentrant, Way::reentrant, Way::policy, Way::offloaded);
  CAPTURE(static_cast<int>(way));
  const Function f = [](const Tensors& in) -> Tensors {
    return {mul(tanh(dropout(in[0], 0.25)), in[0])};
  };
  const auto gradient = [&](bool plain) {
    ambient().streams.seed(7);
    const Tensor x = wave(dtype).set_requires_grad(true);
    if (plain) {
      backward(sum(f({x})[0]));
      return x.grad();
    }
    CheckpointOptions options{.reentrant = way == Way::reentrant};
    if (way == Way::policy) options.policy = [](const OpInstance&) { return Keep::must_save; };
    Tensor y;
    {
      std::optional<OffloadScope> scope;
      if (way == Way::offloaded) scope.emplace(offload());
      y = checkpoint(f, {x}, options)[0];
    }
    CHECK(host().live() == (way == Way::offloaded ? x.bytes() : 0));
    backward(sum(y));
    return x.grad();
  };
  CHECK(same_bits(gradient(false), gradient(true)));
}

}  // namespace rematch
