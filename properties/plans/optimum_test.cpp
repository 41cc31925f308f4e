#include "properties/plans/optimum.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/case/describe.h"
#include "properties/case/geometry.h"
#include "properties/case/json.h"
#include "properties/forecast/engine_facts.h"
#include "properties/forecast/forecast.h"
#include "properties/forecast/protocol.h"
#include "properties/generate/parts.h"
#include "properties/hunt/gather.h"
#include "properties/layers/draw_source.h"
#include "properties/layers/layer.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

bool is_valid(const Case& c) {
  try {
    validate(c);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

Case draw_chain(DrawSource& draw, int fewest, int most) {
  constexpr std::string_view kKinds[] = {"linear",     "linear",  "linear",   "tanh",
                                         "relu",       "gelu",    "sigmoid",  "silu",
                                         "layer_norm", "dropout", "rms_norm", "batch_norm",
                                         "softmax",    "flatten", "rrelu",    "gaussian_noise"};
  Case c;
  c.input = {2, 3};
  for (int i = draw.range(fewest, most); i > 0; --i) {
    LayerSpec l;
    l.kind = layer_kind(kKinds[draw.below(std::size(kKinds))]);
    l.p = layer_of(l).simple_p;
    if (l.kind == layer_kind("linear")) {
      l.features = draw.range(1, 12);
      l.bias = draw.chance(70);
      l.frozen = draw.chance(10);
    }
    c.layers.push_back(l);
    LayerSpec& last = c.layers.back();
    if (draw.chance(20)) last.in_place = layer_of(l).takes("in_place");
    if (last.in_place && !is_valid(c)) last.in_place = false;
  }
  c.input = {draw.range(1, 4), draw.range(1, 12)};
  c.seed = draw.word();
  c.protocol.input_requires_grad = draw.chance(50);
  c.protocol.steps = draw.range(1, 2);
  c.protocol.microbatches = draw.range(1, 2);
  c.protocol.prior_gradients = draw.chance(20);
  c.protocol.zero_grad = draw.chance(70);
  if (draw.chance(30)) c.protocol.loss = LossKind::cross_entropy;
  if (draw.chance(30)) c.protocol.optimizer = OptimizerKind::adam;
  return c;
}

/// A chain of so many layers that save this and that, on rows, whose loss requires grad, without a
/// plan.
Case random_chain(DrawSource& draw, int fewest, int most) {
  for (;;) {
    Case c = draw_chain(draw, fewest, most);
    if (is_valid(c) && loss_requires_grad(c)) return c;
  }
}

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

/// The lowest peak for each number of recomputations, or cost of them, where it is lower than with
/// fewer.
std::map<std::int64_t, std::int64_t> searched(const Case& c,
                                              const std::vector<std::int64_t>& costs) {
  std::map<std::int64_t, std::int64_t> lowest;
  Case planned = c;
  for (Segments& segments : families(0, static_cast<int>(c.layers.size()), true)) {
    planned.plan.segments = std::move(segments);
    try {
      const Forecast f = forecast(planned, validate(planned));
      std::int64_t cost = 0;
      for (std::size_t i = 0; i < costs.size(); ++i) cost += (f.executions[i] - 1) * costs[i];
      const std::int64_t peak = promise_of(f).peak_bytes;
      const auto [at, added] = lowest.emplace(cost, peak);
      at->second = std::min(at->second, peak);
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

using Lowest = std::map<std::int64_t, std::int64_t>;

Lowest found(const Frontier& frontier) {
  Lowest lowest;
  for (const BestPlan& p : frontier.plans) {
    lowest.emplace(p.cost, p.promise.peak_bytes);
  }
  return lowest;
}

/// Looks through all plans for one that beats the given ones, in the order in which a backward
/// decides: the segments of the model, then those in the segment that is recomputed first, the last
/// one, and so on. Whatever lies in a segment is not seen before its recomputation, and adds
/// recomputations. So a plan of which the bytes up to there are too many is too much with all that
/// could lie in that segment, and none of these need be tried.
class Rival {
 public:
  Rival(const Case& c, Lowest known) : known_(std::move(known)), planned_(c) {
    planned_.plan = {};
    geometry_ = validate(planned_);
    engine_facts(planned_, geometry_, true, facts_);
    floor_ = floor_of(chain_of(c, geometry_));
    for (const LayerSpec& l : c.layers) in_place_ = in_place_ || l.in_place;
    for (Segments& segments : flat(0, static_cast<int>(c.layers.size()), true)) {
      planned_.plan.segments = std::move(segments);
      search(0);
    }
  }
  /// A plan that no known one is as good as.
  const std::optional<Case>& found() const { return found_; }
  std::uint64_t tried() const { return tried_; }

 private:
  /// Bytes that every plan has live at some moment: when the backward of a layer runs, all that it
  /// saves is live, beside the gradients; and the optimizer steps.
  static std::int64_t floor_of(const Chain& chain) {
    std::int64_t floor = chain.rest;
    for (std::size_t i = 0; i < chain.layers.size(); ++i) {
      const ChainLayer& l = chain.layers[i];
      const std::int64_t saved = l.own + (l.saves_operand ? chain.value[i] : 0) +
                                 (l.saves_output && !l.alias ? chain.value[i + 1] : 0);
      if (l.has_node)
        floor = std::max(floor, l.before + saved + std::min(l.backward, l.backward_freeing));
    }
    return floor;
  }

  /// Every list of segments side by side in [begin, end); `whole`: one may be all of it.
  static std::vector<Segments> flat(int begin, int end, bool whole) {
    if (begin == end) return {{}};
    std::vector<Segments> all = flat(begin + 1, end, true);
    for (int middle = begin + 1; middle <= end; ++middle) {
      if (middle == end && !whole) continue;
      for (const Segments& others : flat(middle, end, true)) {
        Segments list{{begin, middle, {}, {}}};
        list.insert(list.end(), others.begin(), others.end());
        all.push_back(std::move(list));
      }
    }
    return all;
  }

  /// The segments in the order of their recomputations.
  static void note(Segments& segments, std::vector<SegmentSpec*>& order) {
    for (auto s = segments.rbegin(); s != segments.rend(); ++s) {
      order.push_back(&*s);
      note(s->nested, order);
    }
  }

  /// The first `decided` segments have what lies in them, the others nothing yet.
  void search(std::size_t decided) {
    try {
      // Only in-place layers can make a plan invalid, and more segments do not make it valid.
      if (in_place_) validate(planned_);
    } catch (const std::invalid_argument&) {
      return;
    }
    // The forecast without the plain run, which is always the same.
    Trace& f = traces_[decided];
    protocol_.bind(planned_, geometry_, facts_);
    protocol_.run(planned_.plan.segments, {}, false, f);
    ++tried_;
    PromiseSpec p{0, 0};
    for (const LiveReading& r : f.live) p.peak_bytes = std::max(p.peak_bytes, r.peak);
    for (const int runs : f.executions) p.recomputations += runs - 1;
    const std::int64_t limit = std::prev(known_.upper_bound(p.recomputations))->second;
    if (p.peak_bytes < limit && !found_) found_ = planned_;
    std::vector<SegmentSpec*> order;
    note(planned_.plan.segments, order);
    if (decided == order.size() || std::max(floor_, peak_before(f, decided, order)) >= limit)
      return;
    SegmentSpec* next = order[decided];
    for (Segments& nested : flat(next->begin, next->end, false)) {
      next->nested = std::move(nested);
      search(decided + 1);
    }
    next->nested.clear();
  }

  /// The peak of all that does not depend on what lies in the segments that are not decided:
  /// before the first of their recomputations, and in layers outside of them.
  std::int64_t peak_before(const Trace& f, std::size_t decided,
                           const std::vector<SegmentSpec*>& order) const {
    const auto forwards = static_cast<std::size_t>(std::min(planned_.protocol.steps, 2) *
                                                   planned_.protocol.microbatches);
    // A segment that saves nothing is not recomputed, and then it is not known which number is
    // whose.
    if (f.recomputations.size() != order.size() * forwards) decided = 0;
    std::vector<bool> open(planned_.layers.size());
    for (std::size_t k = decided; k < order.size(); ++k) {
      for (int i = order[k]->begin; i < order[k]->end; ++i)
        open[static_cast<std::size_t>(i)] = true;
    }
    std::int64_t peak = 0;
    std::size_t begun = 0;
    auto next = f.recomputations.begin();
    for (std::size_t i = 0; i < f.live.size(); ++i) {
      const LiveReading& r = f.live[i];
      if (i > 0 && (r.step != f.live[i - 1].step || r.microbatch != f.live[i - 1].microbatch))
        begun = 0;
      if (next != f.recomputations.end() && *next == i) {
        ++begun;
        ++next;
      }
      const bool outside = r.layer >= 0 && !open[static_cast<std::size_t>(r.layer)];
      const bool closed = outside && i > 0 && f.live[i - 1].layer >= 0 &&
                          !open[static_cast<std::size_t>(f.live[i - 1].layer)];
      if (begun <= decided || closed || r.event == Event::step) peak = std::max(peak, r.peak);
    }
    return peak;
  }

  Lowest known_;
  Case planned_;
  Geometry geometry_;
  Facts facts_;
  SymbolicProtocol protocol_;
  /// By the number of segments that are decided, at most one for each interval of layers.
  std::vector<Trace> traces_ = std::vector<Trace>(64);
  std::int64_t floor_ = 0;
  bool in_place_ = false;
  std::uint64_t tried_ = 0;
  std::optional<Case> found_;
};

std::vector<std::int64_t> ones(const Case& c) {
  return std::vector<std::int64_t>(c.layers.size(), 1);
}

/// Up to so many layers, all plans are tried one by one as well.
constexpr std::size_t kOneByOne = 5;

/// The plans of a chain are those that a search through all would find, and keep their promise.
void compare(const Case& c) {
  INFO(to_json(c));
  const Frontier frontier = frontier_of(c);
  CHECK(frontier.exact);
  const Lowest lowest = found(frontier);
  if (c.layers.size() <= kOneByOne) {
    REQUIRE(lowest == searched(c, ones(c)));
  }
  const Rival rival(c, lowest);
  INFO((rival.found() ? describe(*rival.found()) : ""));
  REQUIRE_FALSE(rival.found());
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
    Case c = random_chain(draw, fewest, most);
    // Further forwards are like the first, and cost as much time again.
    if (c.layers.size() > 6) c.protocol.steps = c.protocol.microbatches = 1;
    compare(c);
  }
}

TEST_CASE("the best plans of a chain are those of a search through all plans", "[plans]") {
  compare_many(40, 1, 5);
}

TEST_CASE("where layers take different times, the best plans are those of a search through all",
          "[plans]") {
  for (int i = 0; i < 40; ++i) {
    INFO("seed " << Catch::getSeed() << ", chain " << i);
    DrawSource draw(Catch::getSeed(), static_cast<std::uint64_t>(i));
    const Case c = random_chain(draw, 1, 5);
    std::vector<std::int64_t> costs;
    for (std::size_t k = 0; k < c.layers.size(); ++k) costs.push_back(draw.range(1, 9));
    INFO(to_json(c));
    const Frontier frontier = frontier_of(c, costs);
    CHECK(frontier.exact);
    REQUIRE(found(frontier) == searched(c, costs));
  }
}

TEST_CASE("the best plans of chains of 6 layers are those of a search through all plans",
          "[plans]") {
  compare_many(4, 6, 6);
}

TEST_CASE("the best plans of many chains are those of a search through all plans",
          "[.plans-long]") {
  compare_many(250, 1, 8);
}

TEST_CASE("the search through all plans finds what is left out, and tries what one by one finds",
          "[plans]") {
  for (int i = 0; i < 8; ++i) {
    INFO("seed " << Catch::getSeed() << ", chain " << i);
    DrawSource draw(Catch::getSeed(), static_cast<std::uint64_t>(i));
    const Case c = random_chain(draw, 2, 5);
    const Lowest all = searched(c, ones(c));
    for (const auto& [recomputations, peak] : all) {
      if (recomputations == 0) continue;
      Lowest fewer = all;
      fewer.erase(recomputations);
      const Rival rival(c, fewer);
      REQUIRE(rival.found());
      CHECK(promise_of(forecast(*rival.found(), validate(*rival.found()))).peak_bytes <
            std::prev(fewer.upper_bound(recomputations))->second);
    }
  }
}

}  // namespace
}  // namespace rematch
