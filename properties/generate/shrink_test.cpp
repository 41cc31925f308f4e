#include "properties/generate/shrink.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <ostream>
#include <string>

#include "engine/testing/check_property.h"
#include "properties/case/features.h"
#include "properties/case/geometry.h"
#include "properties/case/json.h"
#include "properties/generate/edit.h"
#include "properties/generate/mix.h"
#include "properties/generate/parts.h"
#include "properties/layers/draw_source.h"

namespace rematch {

/// RapidCheck finds this by its name when it prints a counterexample.
static void showValue(const Case& c, std::ostream& os) { os << '\n' << to_json(c); }

namespace {

/// Cases of a mix for RapidCheck, which shrinks them by shrink_candidates().
rc::Gen<Case> arbitrary_case(Mix mix) {
  return [mix](rc::Random random, int /*size*/) {
    const std::uint64_t seed = random.next();
    return rc::shrinkable::shrinkRecur(generate_case(mix, seed, 0), [](const Case& c) {
      return rc::seq::fromContainer(shrink_candidates(c));
    });
  };
}

bool has(const Case& c, Feature feature) { return features_of(c, validate(c)).contains(feature); }

/// The smallest case that still has `feature`, from the first generated case that has it.
Case smallest_with(Feature feature) {
  const Scope scope(FeatureSet::all(), {declared("own: N C -> N C; parameters"),
                                        declared("other: N C H W -> N C H W; draws")});
  std::uint64_t index = 0;
  while (!has(generate_case(Mix::wide, 9, index, scope), feature)) ++index;
  return shrink(
      generate_case(Mix::wide, 9, index, scope), [&](const Case& c) { return has(c, feature); }, {},
      scope);
}

/// Goes down a random shrink path to its end and checks every candidate on it.
void walk_down(Case c, std::uint64_t seed) {
  DrawSource draw(seed, 0);
  for (;;) {
    const std::vector<Case> candidates = shrink_candidates(c);
    const Complexity bound = complexity(c);
    for (const Case& candidate : candidates) {
      RC_ASSERT(complexity(candidate) < bound);
      RC_ASSERT(candidate.seed == c.seed);
      RC_ASSERT(loss_requires_grad(candidate) || !loss_requires_grad(c));
      validate(candidate);
    }
    if (candidates.empty()) return;
    // Not the boldest: long paths meet more shapes.
    c = candidates[draw.below(static_cast<std::uint32_t>(candidates.size()))];
  }
}

}  // namespace

TEST_CASE("every case on a random shrink path is valid and simpler than the one before: wide") {
  check_property("shrink paths of the wide mix", [] {
    const Case c = *arbitrary_case(Mix::wide);
    walk_down(c, *rc::gen::arbitrary<std::uint64_t>());
  });
}

TEST_CASE("every case on a random shrink path is valid and simpler than the one before: standard") {
  check_property("shrink paths of the standard mix", [] {
    const Case c = *arbitrary_case(Mix::standard);
    walk_down(c, *rc::gen::arbitrary<std::uint64_t>());
  });
}

TEST_CASE("RapidCheck's shrinks of a case are the shrink candidates") {
  const auto shrinkable = arbitrary_case(Mix::wide)(rc::Random(5));
  const std::vector<Case> expected = shrink_candidates(shrinkable.value());
  auto shrinks = shrinkable.shrinks();
  for (const Case& candidate : expected) {
    const auto next = shrinks.next();
    REQUIRE(next);
    REQUIRE(next->value() == candidate);
  }
  CHECK_FALSE(shrinks.next());
}

TEST_CASE("what fails by dropout in a checkpointed segment shrinks to that dropout") {
  const auto fails = [](const Case& c) {
    const std::vector<SegmentSpec> segments = segments_of(c);
    return std::any_of(segments.begin(), segments.end(), [&](const SegmentSpec& s) {
      return std::any_of(c.layers.begin() + s.begin, c.layers.begin() + s.end,
                         [](const LayerSpec& l) { return l.kind == layer_kind("dropout"); });
    });
  };
  int failures = 0;
  for (const Mix mix : {Mix::standard, Mix::wide}) {
    for (std::uint64_t i = 0; i < 200; ++i) {
      const Case c = generate_case(mix, 4, i);
      if (!fails(c)) continue;
      ++failures;
      const Case smallest = shrink(c, fails);
      INFO(to_json(smallest));
      REQUIRE(fails(smallest));
      REQUIRE(smallest.layers.size() <= 2);
      REQUIRE(count_segments(segments_of(smallest)) == 1);
    }
  }
  CHECK(failures > 50);
}

TEST_CASE("each feature shrinks to a model that one would write by hand") {
  for (std::size_t f = 0; f < kFeatureCount; ++f) {
    // Its name says it.
    if (Feature(f) == Feature::more_than_a_few) continue;
    const Case c = smallest_with(Feature(f));
    INFO(to_string(Feature(f)) << "\n" << to_json(c));
    CHECK(c.layers.size() <= 3);
    CHECK(count_segments(segments_of(c)) <= 4);
    if (Feature(f) == Feature::second_block || Feature(f) == Feature::large_values_check) continue;
    CHECK(std::all_of(c.input.begin(), c.input.end(), [](std::int64_t d) { return d <= 3; }));
  }
}

TEST_CASE("what has nothing to do with sizes shrinks to small ones") {
  int large = 0;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    const Case c = generate_case(Mix::wide, 6, i);
    if (!features_of(c, validate(c)).contains(Feature::second_block)) continue;
    ++large;
    const LayerKind last = c.layers.back().kind;
    const Case small = shrink(c, [&](const Case& s) { return s.layers.back().kind == last; });
    INFO(to_json(c) << to_json(small));
    CHECK(std::all_of(small.input.begin(), small.input.end(), [](auto d) { return d <= 3; }));
  }
  CHECK(large > 20);
}

TEST_CASE("only the options that a failure needs are left") {
  Case c = generate_case(Mix::wide, 1, 3);
  c.options = {{"mode", "static_graph"}, {"promise", "nested"}, {"ranks", "4"}};
  const auto fails = [](const Case& tried) { return is_set(tried.options, "promise", "nested"); };
  const Case smallest = shrink(c, fails);
  CHECK(smallest.layers.size() == 1);
  CHECK(smallest.options == Options{{"promise", "nested"}});
  CHECK(shrink(c, [](const Case&) { return true; }).options.empty());
}

TEST_CASE("a promise goes before its segments do, and stays while a smaller model breaks it") {
  Case c = case_from_json(R"({"format": 1, "input": [2, 4], "layers": [
      {"kind": "tanh"}, {"kind": "linear", "features": 4}, {"kind": "tanh"}],
      "plan": {"segments": [{"begin": 0, "end": 1}, {"begin": 1, "end": 3}],
               "promise": {"peak_bytes": 1}}})");
  const Case promised = shrink(c, [](const Case& s) { return s.plan.promise.peak_bytes == 1; });
  CHECK(promised.layers.size() == 1);
  const Case other = shrink(c, [](const Case& s) { return !s.plan.segments.empty(); });
  CHECK(other.plan.promise == PromiseSpec{});
  for (const Case& smaller : shrink_candidates(c)) {
    if (smaller.layers.size() == 3 && smaller.plan.promise != PromiseSpec{}) {
      CHECK(smaller.plan == c.plan);
    }
  }
}

TEST_CASE("a shrink that cannot go on keeps the case") {
  const Case c = generate_case(Mix::wide, 1, 3);
  CHECK(shrink(c, [](const Case&) { return false; }) == c);
}

TEST_CASE("a shrink tries no more cases than its budget") {
  int tried = 0;
  const auto fails = [&](const Case&) { return ++tried > 0; };
  shrink(generate_case(Mix::wide, 1, 3), fails, {3, 10});
  CHECK(tried == 3);
  tried = 0;
  CHECK(shrink(generate_case(Mix::wide, 1, 3), fails, {100, 0}) == generate_case(Mix::wide, 1, 3));
  CHECK(tried == 0);
}

TEST_CASE("removing layers re-indexes skips, ties and segments") {
  const Case c = case_from_json(R"({"format": 1, "input": [2, 3], "layers": [
      {"kind": "linear", "features": 3}, {"kind": "relu"},
      {"kind": "linear", "features": 3, "tied_to": 0},
      {"kind": "linear", "features": 3, "tied_to": 0},
      {"kind": "add", "from": [1, 0]}],
      "plan": {"segments": [{"begin": 0, "end": 2}, {"begin": 2, "end": 5}]}})");
  const Case without_first = without_layers(c, 0, 1);
  CHECK(without_first.layers[1].tied_to == -1);
  CHECK(without_first.layers[2].tied_to == 1);
  CHECK(without_first.layers[3].from == std::vector{ValueRef{0, 0}});
  CHECK(without_first.plan.segments[0].end == 1);
  CHECK(without_first.plan.segments[1].begin == 1);
  const Case without_two = without_layers(c, 0, 2);
  CHECK(without_two.layers[2].from == std::vector{ValueRef{-1, 0}});
  REQUIRE(without_two.plan.segments.size() == 1);
  CHECK(without_two.plan.segments[0] == SegmentSpec{0, 3, {}, {}});
}

TEST_CASE("without its embedding a model takes numbers of the same shape") {
  const Case c = case_from_json(R"({"format": 1, "input": [2, 3], "layers": [
      {"kind": "embedding", "features": 4, "vocabulary": 5},
      {"kind": "linear", "features": 5, "bias": false, "tied_to": 0}]})");
  const Case without = without_layers(c, 0, 1);
  CHECK(without.input == std::vector<std::int64_t>{2, 3, 4});
  CHECK(without.layers[0].tied_to == -1);
  CHECK(validate(without).outputs[0][0] == Shape{2, 3, 5});
}

TEST_CASE("what has nothing to do with tokens shrinks to a model of numbers") {
  const Case c = case_from_json(R"({"format": 1, "input": [2, 3], "layers": [
      {"kind": "embedding", "features": 4, "vocabulary": 5}, {"kind": "relu"}]})");
  const Case any = shrink(c, [](const Case&) { return true; });
  CHECK(any.layers.size() == 1);
  CHECK(any.layers[0].kind != LayerKind::embedding);
}

TEST_CASE("an embedding and its head keep their tie while the vocabulary shrinks") {
  const Case c = case_from_json(R"({"format": 1, "input": [2, 3], "layers": [
      {"kind": "embedding", "features": 4, "vocabulary": 9},
      {"kind": "linear", "features": 9, "bias": false, "tied_to": 0}]})");
  const Case tied = shrink(c, [](const Case& smaller) {
    return smaller.layers.back().tied_to == 0 && smaller.layers[0].kind == LayerKind::embedding &&
           smaller.layers[0].features == 4;
  });
  CHECK(tied.layers[0].vocabulary == 1);
  CHECK(tied.layers.size() == 2);
}

TEST_CASE("a frozen embedding trains where nothing else is left to") {
  const Case c = case_from_json(R"({"format": 1, "input": [2, 3], "layers": [
      {"kind": "embedding", "features": 4, "vocabulary": 5, "frozen": true},
      {"kind": "linear", "features": 2}, {"kind": "tanh"}]})");
  const Case without = shrink(c, [](const Case& smaller) {
    return smaller.layers[0].kind == LayerKind::embedding &&
           smaller.layers.back().kind == LayerKind::tanh;
  });
  CHECK(without.layers.size() == 2);
}

TEST_CASE("an edit of a skip that repeats itself does not overflow on the way") {
  // Once the split is gone, each concat repeats its first operand and doubles the width.
  std::string layers = R"({"kind": "split", "features": 1})";
  for (int i = 0; i < 100; ++i) layers += R"(, {"kind": "concat", "from": [0, 1]})";
  const Case c = case_from_json(R"({"format": 1, "input": [1, 2], "layers": [)" + layers +
                                R"(], "protocol": {"input_requires_grad": true}})");
  for (const Case& candidate : shrink_candidates(c)) REQUIRE_NOTHROW(validate(candidate));
}

TEST_CASE("a property that fails fails its test", "[!shouldfail]") {
  check_property("a property that fails", [](int) { RC_FAIL("by design"); });
}

TEST_CASE("a property of which every case is discarded fails its test", "[!shouldfail]") {
  check_property("a property without cases", [] { RC_PRE(false); });
}

}  // namespace rematch
