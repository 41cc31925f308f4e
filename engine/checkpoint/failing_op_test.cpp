// An op that fails for want of memory, in the forward or a recomputation, and is tried again,
// leaves no trace.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <optional>
#include <stdexcept>

#include "engine/autograd/autocast.h"
#include "engine/checkpoint/backward_group.h"
#include "engine/checkpoint/testing/ways.h"
#include "engine/math/delayed_scaling.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/batch_norm.h"
#include "engine/ops/delayed_scaling.h"
#include "engine/ops/dropout.h"
#include "engine/ops/join.h"
#include "engine/ops/kv_cache.h"
#include "engine/ops/linear.h"
#include "engine/ops/noise.h"
#include "engine/ops/spectral_norm.h"
#include "engine/ops/view.h"
#include "engine/testing/offload_fixture.h"

namespace rematch {
namespace {

using namespace testing;

/// Where a run fails: in allocation number `allocation` of op number `op`; 0: nowhere.
struct Failure {
  int op = 0;
  int allocation = 0;
};

enum class Walk { once, grouped, twice };

struct Retried {
  Tensors results;
  std::vector<Generator> streams;
  int ops = 0;
  std::int64_t saved = 0;
  bool failed = false;
};

/// Every op that draws, keeps a state or has several results, once in a region, beside a function
/// that throws.
class FailingProgram {
 public:
  FailingProgram(const Runner& run, Failure failure) : run_(run), failure_(failure) {
    ambient().streams = Streams(7);
    for (const Shape& shape : {Shape{2, 4}, Shape{4, 4}, Shape{4}, Shape{4}}) {
      leaves_.push_back(testing::leaf(shape, leaves_.size()));
    }
    for (const Shape& shape : {Shape{1}, Shape{math::kFloat8History}, Shape{4}, Shape{4}, Shape{4},
                               Shape{4}, Shape{1, 4}}) {
      states_.push_back(Tensor::full(shape, DType::float32, 0.5));
    }
  }

  Retried train(bool autocast, Walk walk) {
    const std::int64_t before = ambient().ledger->live(Tag::saved);
    Tensor loss;
    {
      const AutocastScope scope(autocast);
      const Tensors h =
          run_([this](const Tensors& in) -> Tensors { return {drawn(in[0])}; }, {leaves_[0]});
      loss = sum(run_([this](const Tensors& in) -> Tensors { return {stateful(in[0])}; }, h)[0]);
    }
    Retried r;
    r.saved = ambient().ledger->live(Tag::saved) - before;
    std::optional<BackwardGroup> group;
    if (walk == Walk::grouped) group.emplace();
    for (int left = walk == Walk::twice ? 2 : 1; left > 0; --left) {
      for (Tensor& leaf : leaves_) leaf.set_grad({});
      backward(loss, {.retain_graph = left > 1});
      for (const Tensor& leaf : leaves_) r.results.push_back(leaf.grad());
    }
    r.results.insert(r.results.end(), states_.begin(), states_.end());
    r.results.push_back(loss.detach());
    r.streams = ambient().streams.states();
    r.ops = ops_;
    r.failed = failed_;
    return r;
  }

 private:
  /// Runs an op, and again where it is the one that fails.
  template <class Run>
  auto attempt(const Run& run) {
    if (++ops_ != failure_.op) return run();
    Ledger& ledger = *ambient().ledger;
    ledger.fail_allocation(failure_.allocation);
    try {
      auto result = run();
      ledger.fail_allocation(0);
      return result;
    } catch (const OutOfMemory&) {
      failed_ = true;
      return run();
    }
  }

  Tensor drawn(const Tensor& x) {
    Tensor y = attempt([&] { return dropout(x, 0.25); });
    const auto halves = attempt([&] { return split(y, 2); });
    y = attempt([&] { return concat(halves[1], halves[0]); });
    y = attempt([&] { return tanh(y); });
    y = attempt([&] { return linear(y, leaves_[1]); });
    abandon(y);
    y = attempt([&] { return rrelu(y); });
    return mul(attempt([&] { return gaussian_noise(y, 0.5); }), y);
  }

  Tensor stateful(const Tensor& x) {
    Tensor y = attempt([&] { return delayed_scaling(x, states_[0], true); });
    y = attempt([&] { return delayed_float8(y, states_[1], true); });
    y = attempt([&] { return batch_norm(y, leaves_[2], leaves_[3], states_[2], states_[3]); });
    y = attempt([&] { return spectral_norm(y, leaves_[1], {}, states_[4], states_[5], true); });
    const Tensor sequence = reshape(y, {1, 2, 4});
    return tanh(attempt([&] { return kv_cache(sequence, states_[6], true); }));
  }

  /// Ops in a region whose function throws every time.
  void abandon(const Tensor& x) {
    const Function f = [&](const Tensors& in) -> Tensors {
      const Tensor y = attempt([&] { return dropout(in[0], 0.25); });
      attempt([&] { return delayed_scaling(y, states_[0], true); });
      throw std::domain_error("mine");
    };
    CHECK_THROWS_AS(run_(f, {x}), std::domain_error);
  }

  const Runner& run_;
  Failure failure_;
  Tensors leaves_;
  Tensors states_;
  int ops_ = 0;
  bool failed_ = false;
};

void check_same(const Retried& got, const Retried& expected) {
  REQUIRE(got.results.size() == expected.results.size());
  for (std::size_t i = 0; i < got.results.size(); ++i) {
    CAPTURE(i);
    CHECK(same_bits(got.results[i], expected.results[i]));
  }
  CHECK(got.streams == expected.streams);
}

}  // namespace

TEST_CASE_METHOD(OffloadFixture, "an op that fails anywhere, and is tried again, leaves no trace") {
  const Runner run{testing::ways(), offload()};
  const bool autocast = GENERATE(false, true);
  const Walk walk = GENERATE(Walk::once, Walk::grouped, Walk::twice);
  // What a policy kept serves one recomputation.
  if (run.way == Way::policy && walk == Walk::twice) return;
  const Retried plain = FailingProgram({Way::plain, offload()}, {}).train(autocast, walk);
  const Retried expected = FailingProgram(run, {}).train(autocast, walk);
  check_same(expected, plain);
  for (int op = 1; op <= expected.ops; ++op) {
    for (int allocation = 1;; ++allocation) {
      CAPTURE(static_cast<int>(run.way), autocast, static_cast<int>(walk), op, allocation);
      const Retried got = FailingProgram(run, {op, allocation}).train(autocast, walk);
      if (!got.failed) break;
      check_same(got, expected);
      CHECK(got.ops == expected.ops);
      CHECK(got.saved == expected.saved);
    }
    if (op > plain.ops) continue;
    check_same(FailingProgram({Way::plain, offload()}, {op, 1}).train(autocast, walk), plain);
  }
}

}  // namespace rematch
