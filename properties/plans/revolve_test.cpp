#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "properties/forecast/testing/small_cases.h"
#include "properties/hunt/gather.h"
#include "properties/plans/optimum.h"
#include "properties/plans/revolve.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

using testing::segment;
using testing::tanh_chain;

constexpr int kMostLayers = 48;
constexpr int kMostSlots = 6;
/// Bytes of a value of tanh_chain(), and of all else at the peak of its leanest plan.
constexpr std::int64_t kValue = 24;
constexpr std::int64_t kLeast = 104;

/// As segments of a case.
std::vector<SegmentSpec> plan(const Revolve& revolve, int layers, int slots, Variant variant) {
  return revolve.plan<SegmentSpec>(0, layers, slots,
                                   [&](int begin, int end, std::vector<SegmentSpec> nested) {
                                     return segment(begin, end, variant, std::move(nested));
                                   });
}

struct Run {
  std::int64_t peak = 0;
  std::int64_t recomputations = 0;
  bool kept = false;  ///< All laws are.
};

Run run(int layers, std::vector<SegmentSpec> segments) {
  Case c = tanh_chain(layers);
  c.plan.segments = std::move(segments);
  EngineSubject engine;
  Workspace seen;
  Run r;
  r.kept = judge_case(c, engine, seen).kept();
  for (const LiveReading& l : seen.checkpointed.live) r.peak = std::max(r.peak, l.peak);
  for (const ExecutionCount& x : seen.checkpointed.executions) r.recomputations += x.count - 1;
  return r;
}

TEST_CASE("plans by Revolve recompute as often as it says, within the bytes of their slots",
          "[plans]") {
  const Revolve revolve(kMostLayers, kMostSlots);
  for (int layers = 2; layers <= kMostLayers; ++layers) {
    for (int slots = 0; slots <= kMostSlots; ++slots) {
      INFO(layers << " layers, " << slots << " slots");
      const Run r = run(layers, plan(revolve, layers, slots, Variant::non_reentrant));
      CHECK(r.kept);
      CHECK(r.recomputations == revolve.steps(layers, slots));
      CHECK(r.peak == kLeast + kValue * std::min(slots, layers - 2));
    }
  }
}

TEST_CASE("reentrant segments keep the inputs of each level, and no budget of slots", "[plans]") {
  const Revolve revolve(kMostLayers, kMostSlots);
  const int layers = 16;
  CHECK(run(layers, {}).peak == 464);
  CHECK(run(layers, plan(revolve, layers, 0, Variant::non_reentrant)).peak == 104);
  const Run nested = run(layers, plan(revolve, layers, 0, Variant::reentrant));
  CHECK(nested.kept);
  CHECK(nested.peak == 772);
}

TEST_CASE("no plan by Revolve beats the best plans, which know what a layer saves", "[plans]") {
  const Revolve revolve(kMostLayers, kMostSlots);
  for (const int layers : {5, 12, 20}) {
    const Frontier frontier = frontier_of(tanh_chain(layers));
    CHECK(frontier.exact);
    for (int slots = 0; slots <= kMostSlots; ++slots) {
      INFO(layers << " layers, " << slots << " slots");
      const std::int64_t bytes = kLeast + kValue * std::min(slots, layers - 2);
      const auto best =
          std::find_if(frontier.plans.begin(), frontier.plans.end(),
                       [&](const BestPlan& p) { return p.promise.peak_bytes <= bytes; });
      REQUIRE(best != frontier.plans.end());
      CHECK(best->promise.recomputations <= revolve.steps(layers, slots));
    }
  }
}

/// Forward steps by checkpoint_schedules 1.0.4, Revolve and MultistageCheckpointSchedule alike, of
/// which one is each layer's first.
struct Counted {
  int layers;
  int snapshots;  ///< One of them is the input.
  int steps;
};
constexpr std::array kCounted{
    Counted{2, 1, 3},    Counted{5, 1, 15},   Counted{5, 2, 11},   Counted{5, 3, 10},
    Counted{8, 1, 36},   Counted{8, 2, 22},   Counted{8, 3, 19},   Counted{8, 5, 17},
    Counted{8, 7, 15},   Counted{16, 1, 136}, Counted{16, 2, 61},  Counted{16, 3, 49},
    Counted{16, 5, 41},  Counted{16, 7, 39},  Counted{32, 1, 528}, Counted{32, 2, 172},
    Counted{32, 3, 125}, Counted{32, 5, 100}, Counted{32, 7, 87},  Counted{48, 1, 1176},
    Counted{48, 2, 315}, Counted{48, 3, 218}, Counted{48, 5, 164}, Counted{48, 7, 147}};

TEST_CASE("checkpoint_schedules counts the same steps", "[plans]") {
  const Revolve revolve(kMostLayers, kMostSlots);
  for (const Counted& c : kCounted) {
    INFO(c.layers << " layers, " << c.snapshots << " snapshots");
    CHECK(c.layers + revolve.steps(c.layers, c.snapshots - 1) == c.steps);
  }
}

}  // namespace
}  // namespace rematch
