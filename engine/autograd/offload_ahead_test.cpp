// Copies of an Offload that are begun before they are needed, and ended after.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <stdexcept>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/autograd/offload.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

constexpr std::int64_t kBytes = 64 * 4;

/// Tensors that were packed, and of which nothing else is left.
class Packed {
 public:
  explicit Packed(const OffloadOptions& options, int count = 4) : offload(options) {
    for (int i = 0; i < count; ++i) {
      kept.push_back(values_off_zero({64}, static_cast<std::uint64_t>(i), DType::float32));
      packed.push_back(offload.pack(kept.back().clone()));
    }
    offload.finish();
    base = live();
  }
  static std::int64_t live() { return ambient().ledger->live(); }
  /// Tensors that are on the device now and were not at first.
  std::int64_t here() const { return (live() - base) / kBytes; }
  /// Whether a copy back has the values.
  bool has_values(std::size_t i) const { return same_bits(packed[i]->unpack(), kept[i]); }

  Offload offload;
  std::vector<Tensor> kept;
  std::vector<std::unique_ptr<PackedTensor>> packed;
  std::int64_t base = 0;
};

}  // namespace

TEST_CASE_METHOD(LedgerScope, "as many tensors as asked for are copied back before their turn") {
  Packed all({.ahead = 2});
  {
    const Tensor last = all.packed[3]->unpack();
    CHECK(all.here() == 3);
    const Tensor before = all.packed[2]->unpack();
    // It was there, and another is.
    CHECK(all.here() == 4);
    CHECK(same_bits(before, all.kept[2]));
  }
  CHECK(all.here() == 2);
  for (const std::size_t i : {1, 0}) CHECK(all.has_values(i));
  CHECK(all.here() == 0);
}

TEST_CASE_METHOD(LedgerScope, "without a lookahead nothing is copied back before its turn") {
  Packed all({});
  (void)all.packed[3]->unpack();
  CHECK(all.here() == 0);
}

TEST_CASE_METHOD(LedgerScope, "what backward turns out not to need next gives its block back") {
  Packed all({.ahead = 1}, 6);
  (void)all.packed[5]->unpack();
  CHECK(all.here() == 1);
  (void)all.packed[2]->unpack();
  CHECK(all.here() == 1);
  all.packed.erase(all.packed.begin() + 1);
  CHECK(all.here() == 0);
  CHECK(all.has_values(0));
}

TEST_CASE_METHOD(LedgerScope, "a lookahead that finds no memory waits for its turn") {
  Packed all({.ahead = 2});
  ambient().ledger->fail_allocation(2);
  (void)all.packed[3]->unpack();
  CHECK(all.here() == 0);
  CHECK(all.has_values(2));
}

TEST_CASE_METHOD(LedgerScope, "as many sources as asked for are held for copies out") {
  Offload offload({.copies_out = 2});
  std::vector<std::unique_ptr<PackedTensor>> packed;
  const std::int64_t base = ambient().ledger->live();
  for (const std::int64_t held : {1, 2, 2, 2}) {
    packed.push_back(offload.pack(Tensor::ones({64}, DType::float32)));
    CHECK(ambient().ledger->live() - base == held * kBytes);
  }
  offload.finish();
  CHECK(ambient().ledger->live() == base);
}

TEST_CASE_METHOD(LedgerScope, "gradients have the same bits however far copies run ahead") {
  const auto gradient = [](const OffloadOptions& options, bool retain) {
    Offload offload(options);
    Tensor x = values_off_zero({40}, 3, DType::float32);
    x.set_requires_grad(true);
    Tensor y = x;
    {
      const OffloadScope scope(offload);
      for (int i = 0; i < 5; ++i) y = mul(tanh(y), y);
    }
    const Tensor loss = sum(y);
    if (retain) backward(loss, {.retain_graph = true});
    backward(loss);
    return x.grad().clone();
  };
  const bool retain = GENERATE(false, true);
  const Tensor want = gradient({}, retain);
  for (const int ahead : {1, 2, 20}) {
    CHECK(same_bits(gradient({.copies_out = ahead, .ahead = ahead}, retain), want));
  }
}

TEST_CASE_METHOD(LedgerScope,
                 "an offload that could hold no source, or less than none, is refused") {
  CHECK_THROWS_AS(Offload({.copies_out = 0}), std::invalid_argument);
  CHECK_THROWS_AS(Offload({.ahead = -1}), std::invalid_argument);
}

}  // namespace rematch
