#include "properties/plans/optimum.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "properties/case/describe.h"
#include "properties/case/json.h"
#include "properties/court/random_chain.h"
#include "properties/forecast/forecast.h"
#include "properties/hunt/gather.h"
#include "properties/layers/draw_source.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

using Segments = std::vector<SegmentSpec>;

/// Every laminar family of segments in [begin, end); `whole`: one may be all of it.
std::vector<Segments> families(int begin, int end, bool whole) {
  std::vector<Segments> all;
  if (begin == end) return {{}};
  // The first layer is outside of all segments, or in one that ends at `middle`.
  for (const Segments& others : families(begin + 1, end, true)) all.push_back(others);
  for (int middle = begin + 1; middle <= end; ++middle) {
    if (middle == end && !whole) continue;
    for (const Segments& nested : families(begin, middle, false)) {
      for (const Segments& others : families(middle, end, true)) {
        Segments family{{begin, middle, {}, nested}};
        family.insert(family.end(), others.begin(), others.end());
        all.push_back(std::move(family));
      }
    }
  }
  return all;
}

/// The lowest peak for each number of recomputations, where it is lower than with fewer.
std::map<std::int64_t, std::int64_t> searched(const Case& c, int most_segments) {
  std::map<std::int64_t, std::int64_t> lowest;
  Case planned = c;
  for (Segments& segments : families(0, static_cast<int>(c.layers.size()), true)) {
    if (std::cmp_greater(segments.size(), most_segments)) continue;
    planned.plan.segments = std::move(segments);
    try {
      const PromiseSpec p = promise_of(forecast(planned, validate(planned)));
      const auto [at, added] = lowest.emplace(p.recomputations, p.peak_bytes);
      at->second = std::min(at->second, p.peak_bytes);
    } catch (const std::invalid_argument&) {
      // An in-place layer is cut off.
    }
  }
  std::int64_t peak = std::numeric_limits<std::int64_t>::max();
  std::erase_if(lowest, [&](const auto& entry) {
    const bool worse = entry.second >= peak;
    peak = std::min(peak, entry.second);
    return worse;
  });
  return lowest;
}

std::map<std::int64_t, std::int64_t> found(const Frontier& frontier) {
  std::map<std::int64_t, std::int64_t> lowest;
  for (const BestPlan& p : frontier.plans) {
    lowest.emplace(p.promise.recomputations, p.promise.peak_bytes);
  }
  return lowest;
}

/// The plans of a chain are those that a search through all would find, and keep their promise.
void compare(const Case& c, bool run, int most_segments = kAnyNumber) {
  INFO(to_json(c));
  const Frontier frontier = frontier_of(c, most_segments);
  CHECK(frontier.exact);
  REQUIRE(found(frontier) == searched(c, most_segments));
  if (!run) return;
  EngineSubject engine;
  Workspace workspace;
  for (const BestPlan& best : frontier.plans) {
    Case planned = c;
    planned.plan.segments = best.segments;
    planned.plan.promise = best.promise;
    INFO(describe(planned));
    REQUIRE(judge_case(planned, engine, workspace).kept());
    std::int64_t peak = 0;
    for (const LiveReading& r : workspace.checkpointed.live) peak = std::max(peak, r.peak);
    REQUIRE(peak == best.promise.peak_bytes);
  }
}

void compare_many(int chains, int fewest, int most) {
  for (int i = 0; i < chains; ++i) {
    INFO("seed " << Catch::getSeed() << ", chain " << i);
    DrawSource draw(Catch::getSeed(), static_cast<std::uint64_t>(i));
    const Case c = random_chain(draw, fewest, most);
    compare(c, true);
    compare(c, false, 1 + i % 2);
  }
}

TEST_CASE("the best plans of a chain are those of a search through all plans", "[plans]") {
  compare_many(40, 1, 5);
}

TEST_CASE("the best plans of many chains are those of a search through all plans",
          "[.plans-long]") {
  compare_many(1000, 1, 6);
}

TEST_CASE("the best plans of longer chains are those of a search through all plans",
          "[.plans-longer]") {
  compare_many(20, 7, 7);
}

}  // namespace
}  // namespace rematch
