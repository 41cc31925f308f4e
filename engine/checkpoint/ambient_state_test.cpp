// A region, a recomputation, or an error in either leaves the ambient state as it was.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <optional>
#include <stdexcept>
#include <vector>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/checkpoint/backward_group.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/early_stop.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/noise.h"
#include "engine/testing/ambient_snapshot.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/passing_watcher.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

/// Notes the ambient state after each node of a backward.
class AfterNodes final : public RunObserver {
 public:
  AfterNodes() { ambient().observer = this; }
  ~AfterNodes() override { ambient().observer = nullptr; }
  AfterNodes(const AfterNodes&) = delete;
  AfterNodes& operator=(const AfterNodes&) = delete;

  void on_gradients(const Node& /*node*/) override { seen.push_back(AmbientSnapshot::now()); }
  void on_draw(const Generator&, std::int64_t, std::span<const std::byte>) override {}

  std::vector<AmbientSnapshot> seen;
};

/// Every field of the ambient state at something else than it begins with.
class Unusual {
 public:
  Unusual()
      : hooks_([](const Tensor& t) { return t; }, [](const Tensor& t) { return t; }),
        hook_scope_(&hooks_) {
    ambient().streams.seed(7);
    ambient().streams.at(ambient().streams.add("other")).draw(40);
  }
  const std::vector<AmbientSnapshot>& after_nodes() const { return observer_.seen; }

 private:
  AutocastScope autocast_;
  FunctionHooks hooks_;
  HookScope hook_scope_;
  PassingWatcher watcher_;
  AfterNodes observer_;
  EarlyStop early_stop_{std::nullopt};
  BackwardGroup group_;
};

using Kinds = std::vector<bool>;

/// Nestings of up to three levels; true is reentrant.
Kinds nestings() {
  return GENERATE(Kinds{false}, Kinds{true}, Kinds{false, false}, Kinds{false, true},
                  Kinds{true, false}, Kinds{true, true}, Kinds{false, false, false},
                  Kinds{true, true, true}, Kinds{false, true, false}, Kinds{true, false, true});
}

/// Regions in regions, each of which draws and saves on its way in and, if it has a tail, out.
struct Nest {
  Kinds kinds;
  bool tail = true;
  CheckpointOptions options = {};
  /// Called at the beginning of each level, and when what is inside has returned. Level 0 lies
  /// outside of all regions.
  std::function<void(int)> begins = [](int) {};
  std::function<void(int)> returns = [](int) {};

  Tensor run(const Tensor& x) const { return level(0, x); }

 private:
  Tensor level(std::size_t i, const Tensor& x) const {
    begins(static_cast<int>(i));
    Tensor h = rrelu(tanh(x), 0.75, 1.25);
    if (i == kinds.size()) return h;
    const Function inside = [this, i](const Tensors& in) -> Tensors {
      return {level(i + 1, in[0])};
    };
    CheckpointOptions here = options;
    here.reentrant = kinds[i];
    h = checkpoint(inside, {h}, here)[0];
    returns(static_cast<int>(i));
    return tail ? rrelu(tanh(h), 0.75, 1.25, {.stream = ambient().streams.size() - 1}) : h;
  }
};

Tensor nest_input() { return variable({-0.5, -0.25}, {2}); }

/// Gradient of a seeded step.
Tensor gradient_of(const Nest& nest) {
  ambient().streams.seed(7);
  const Tensor x = nest_input();
  backward(sum(nest.run(x)));
  return x.grad();
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a backward through regions in regions leaves nothing changed") {
  const Kinds kinds = nestings();
  const bool tail = GENERATE(false, true);
  const bool early_stop = GENERATE(false, true);
  const bool preserve = GENERATE(true, false);
  const bool recording = GENERATE(true, false);
  CAPTURE(kinds, tail, early_stop, preserve, recording);
  const Unusual state;
  const Nest nest{.kinds = kinds,
                  .tail = tail,
                  .options = {.preserve_rng = preserve, .early_stop = early_stop}};
  const Tensor x = nest_input();
  Tensor middle = scale(x, 1);
  const Tensor y = nest.run(middle);
  Tensor z = scale(y, 1);
  std::vector<AmbientSnapshot> seen;
  const auto look = [&](const Tensor&) {
    seen.push_back(AmbientSnapshot::now());
    return Tensor();
  };
  // Before all recomputations, and after.
  z.register_hook(look);
  middle.register_hook(look);
  const Tensor loss = sum(z);
  const GradMode mode(recording);
  const AmbientSnapshot before = AmbientSnapshot::now();
  backward(loss);
  const AmbientSnapshot after = AmbientSnapshot::now();
  REQUIRE(seen.size() == 2);
  CHECK_FALSE(seen[0].grad_enabled);
  CHECK(seen[0].backward_id != 0);
  const auto same = [&](const AmbientSnapshot& a, const AmbientSnapshot& b) {
    return preserve ? a == b : apart_from_draws(a) == apart_from_draws(b);
  };
  CHECK(same(seen[1], seen[0]));
  CHECK(same(after, before));
  // And within, after each node of this pass; a reentrant region's recomputation runs its own
  // passes.
  int nodes = 0;
  for (const AmbientSnapshot& s : state.after_nodes()) {
    if (s.backward_id != seen[0].backward_id) continue;
    ++nodes;
    CHECK(same(s, seen[0]));
  }
  CHECK(nodes >= 3);
}

TEST_CASE_METHOD(LedgerScope,
                 "a recomputation begins with what its region began with, at every level") {
  const Kinds kinds = nestings();
  CAPTURE(kinds);
  const Unusual state;
  Nest nest{.kinds = kinds};
  std::vector<AmbientSnapshot> forward(kinds.size() + 1);
  std::vector<int> runs(kinds.size() + 1, 0);
  bool in_backward = false;
  nest.begins = [&](int level) {
    const auto at = static_cast<std::size_t>(level);
    const AmbientSnapshot now = AmbientSnapshot::now();
    if (++runs[at] == 1) {
      forward[at] = now;
      return;
    }
    CAPTURE(level, runs[at]);
    const AmbientSnapshot& then = forward[at];
    CHECK(now.streams == then.streams);
    CHECK(now.stream_names == then.stream_names);
    CHECK(now.autocast == then.autocast);
    CHECK(now.autocast_dtype == then.autocast_dtype);
    CHECK(now.autocast_caches == then.autocast_caches);
    // A live scope of the same settings goes on being used.
    CHECK(now.cache == then.cache);
    CHECK(now.ledger == then.ledger);
    CHECK(now.observer == then.observer);
    CHECK(now.early_stop == then.early_stop);
    CHECK(now.backward_group == then.backward_group);
    // Run r is part of the recomputation of region r - 1; regions within that one have their
    // forward in it.
    const auto own = kinds.begin() + runs[at] - 1;
    CHECK(now.grad_enabled == std::none_of(own, kinds.begin() + level, std::identity{}));
    CHECK(now.recomputing);
    CHECK(now.backward_id != 0);
    CHECK(now.ops != forward[0].ops);
    CHECK(in_backward);
  };
  const Tensor y = sum(nest.run(nest_input()));
  ambient().streams.at(0).draw(4);
  in_backward = true;
  backward(y);
  CHECK(runs.front() == 1);
  for (std::size_t i = 1; i < runs.size(); ++i) CHECK(runs[i] == static_cast<int>(i) + 1);
}

TEST_CASE_METHOD(LedgerScope, "an error at any level of any run leaves all as it was found there") {
  const Kinds kinds = nestings();
  const bool at_end = GENERATE(false, true);
  const int levels = static_cast<int>(kinds.size());
  const Tensor expected = gradient_of({.kinds = kinds});
  for (int level = 1; level <= levels; ++level) {
    // An inside returns to all levels but the innermost.
    if (at_end && level == levels) continue;
    for (int run = 1; run <= level + 1; ++run) {
      CAPTURE(kinds, at_end, level, run);
      ambient().streams.seed(7);
      const std::int64_t live = ledger().live();
      {
        const Unusual state;
        Nest nest{.kinds = kinds};
        int runs = 0;
        (at_end ? nest.returns : nest.begins) = [&](int now) {
          if (now == level && ++runs == run) throw std::domain_error("mine");
        };
        const Tensor x = nest_input();
        AmbientSnapshot before = AmbientSnapshot::now();
        bool thrown = false;
        Tensor y;
        try {
          y = sum(nest.run(x));
          before = AmbientSnapshot::now();
          backward(y, {.retain_graph = true});
        } catch (const std::domain_error&) {
          thrown = true;
        }
        CHECK(thrown);
        const AmbientSnapshot after = AmbientSnapshot::now();
        // A forward that fails has drawn what it has drawn.
        if (y.defined()) CHECK(after == before);
        CHECK(apart_from_draws(after) == apart_from_draws(before));
      }
      CHECK(ledger().live() == live);
      ambient().streams = Streams(7);
      CHECK(same_bits(gradient_of({.kinds = kinds}), expected));
    }
  }
}

}  // namespace rematch
