// Threads: each has its own ambient state, and a graph may go from one to another.
#include <algorithm>
#include <barrier>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/backward_group.h"
#include "engine/checkpoint/early_stop.h"
#include "engine/checkpoint/sequential.h"
#include "engine/checkpoint/tensor_hash.h"
#include "engine/nn/layers.h"
#include "engine/nn/optimizer.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/noise.h"
#include "engine/testing/ambient_snapshot.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

/// Observations of one thread. Catch2's macros belong to the thread of the test.
struct Seen {
  std::vector<std::uint64_t> hashes;
  std::vector<Generator> streams;
  std::int64_t peak = 0;
  std::int64_t live = 0;
  int runs = 0;
  bool state_kept = true;

  friend bool operator==(const Seen&, const Seen&) = default;
};

/// Three steps in a fresh ambient state, in which everything depends on `number`. Calls `together`
/// where all threads shall be at once.
Seen train(int number, const std::function<void()>& together) {
  const Ambient outer = ambient();
  ambient() = Ambient{};
  Seen seen;
  {
    ambient().streams.seed(static_cast<std::uint64_t>(number));
    ambient().ledger->set_poison(true);
    std::optional<AutocastScope> autocast;
    if (number % 2 == 1) autocast.emplace();
    std::optional<EarlyStop> early_stop;
    if (number % 3 == 1) early_stop.emplace(false);
    Generator g{static_cast<std::uint64_t>(number), 3, 0};
    nn::Sequential net({std::make_shared<nn::Linear>(5, 8, true, DType::float32, &g),
                        std::make_shared<nn::BatchNorm>(8),
                        std::make_shared<nn::Activation>(nn::ActivationKind::tanh),
                        std::make_shared<nn::RandomLayer>(nn::RandomKind::dropout, 0.25),
                        std::make_shared<nn::Linear>(8, 8, true, DType::float32, &g),
                        std::make_shared<nn::RandomLayer>(nn::RandomKind::rrelu),
                        std::make_shared<nn::Linear>(8, 3, true, DType::float32, &g)});
    std::vector<Function> layers = net.functions();
    layers.insert(layers.begin(), [&seen](const Tensors& in) -> Tensors {
      ++seen.runs;
      return {tanh(in[0])};
    });
    nn::Adam adam(net.parameters(), 0.125);
    const Tensor x =
        testing::values_off_zero({4, 5}, static_cast<std::uint64_t>(number), DType::float32)
            .set_requires_grad(true);
    for (int step = 0; step < 3; ++step) {
      adam.zero_grad();
      together();
      const Tensor y = checkpoint_sequential(layers, 1 + number % 5, {x}, LastSegment::checkpointed,
                                             {.reentrant = number % 4 == 2})[0];
      const Tensor loss = sum(mul(y, y));
      const AmbientSnapshot before = AmbientSnapshot::now();
      together();
      {
        std::optional<BackwardGroup> group;
        if (number % 5 == 3) group.emplace();
        backward(loss);
      }
      seen.state_kept = seen.state_kept && AmbientSnapshot::now() == before;
      adam.step();
      seen.hashes.push_back(tensor_hash(y));
      seen.hashes.push_back(tensor_hash(x.grad()));
    }
    for (const Tensor& p : net.parameters()) seen.hashes.push_back(tensor_hash(p));
    for (const Tensor& b : net.buffers()) seen.hashes.push_back(tensor_hash(b));
    seen.streams = ambient().streams.states();
    seen.peak = ambient().ledger->peak();
  }
  seen.live = ambient().ledger->live();
  ambient() = outer;
  return seen;
}

/// work(i) for each of n threads, and an end of all.
void on_threads(int n, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back([&work, i] { work(i); });
  for (std::thread& t : threads) t.join();
}

/// Does `work` on another thread that shares the ledger, and waits for it.
void elsewhere(const std::function<void()>& work) {
  const std::shared_ptr<Ledger> ledger = ambient().ledger;
  on_threads(1, [&](int) {
    ambient().ledger = ledger;
    work();
    ambient() = Ambient{};
  });
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "threads train at once as each would alone") {
  const int n = GENERATE(2, 3, 5, 9, 17);
  std::vector<Seen> expected;
  for (int i = 0; i < n; ++i) expected.push_back(train(i, [] {}));
  std::vector<Seen> got(static_cast<std::size_t>(n));
  std::barrier all(n);
  on_threads(n, [&](int i) {
    got[static_cast<std::size_t>(i)] = train(i, [&] { all.arrive_and_wait(); });
  });
  for (int i = 0; i < n; ++i) {
    CAPTURE(n, i);
    const Seen& mine = got[static_cast<std::size_t>(i)];
    CHECK(mine == expected[static_cast<std::size_t>(i)]);
    CHECK(mine.live == 0);
    CHECK(mine.state_kept);
    CHECK(mine.runs == 6);
  }
}

TEST_CASE_METHOD(LedgerScope, "no two storages of many threads have one id") {
  const int n = GENERATE(2, 5, 17);
  std::vector<std::vector<std::uint64_t>> ids(static_cast<std::size_t>(n));
  on_threads(n, [&](int i) {
    for (int k = 0; k < 1000; ++k) {
      ids[static_cast<std::size_t>(i)].push_back(Tensor::ones({1}, DType::float32).storage()->id());
    }
  });
  std::vector<std::uint64_t> all;
  for (const auto& some : ids) {
    CHECK(std::is_sorted(some.begin(), some.end()));
    all.insert(all.end(), some.begin(), some.end());
  }
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
}

TEST_CASE_METHOD(LedgerScope,
                 "a graph may be made on one thread and walked on any of many others") {
  const int n = GENERATE(1, 2, 5, 17);
  const bool reentrant = GENERATE(false, true);
  CAPTURE(n, reentrant);
  const auto train_on = [&](bool threads, bool plain) {
    // Captured, of a thread that is gone; kept, of the forward's; and made by each run.
    Tensor captured;
    elsewhere([&] { captured = variable({0.5, -0.75}, {2}); });
    Tensor kept;
    const Function f = [&](const Tensors& in) -> Tensors {
      if (!kept.defined()) kept = Tensor::full({2}, DType::float64, 1.25);
      const Tensor made = Tensor::full({2}, DType::float64, 0.75);
      return {tanh(rrelu(mul(mul(mul(in[0], captured), kept), made), 0.75, 1.25))};
    };
    const Tensor x = variable({-0.5, 0.25}, {2});
    Tensor loss;
    ambient().streams.seed(7);
    loss = sum(plain ? f({x})[0] : checkpoint(f, {x}, {.reentrant = reentrant})[0]);
    bool kept_state = true;
    const auto walk = [&] {
      ambient().streams.seed(99);
      ambient().streams.add("of this thread");
      const AutocastScope autocast;
      const AmbientSnapshot before = AmbientSnapshot::now();
      backward(loss, {.retain_graph = true});
      kept_state = kept_state && AmbientSnapshot::now() == before;
    };
    for (int i = 0; i < n; ++i) {
      threads ? elsewhere(walk) : walk();
    }
    CHECK(kept_state);
    return Tensors{x.grad(), captured.grad()};
  };
  const Tensors expected = train_on(false, true);
  for (const bool threads : {false, true}) {
    const Tensors got = train_on(threads, false);
    CHECK(same_bits(got[0], expected[0]));
    CHECK(same_bits(got[1], expected[1]));
  }
  CHECK(testing::all_nonzero(expected[0]));
}

}  // namespace rematch
