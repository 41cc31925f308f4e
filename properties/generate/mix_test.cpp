#include "properties/generate/mix.h"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <map>
#include <string>

#include "properties/case/features.h"
#include "properties/case/geometry.h"
#include "properties/case/json.h"
#include "properties/generate/parts.h"
#include "properties/layers/draw_source.h"
#include "properties/layers/layer.h"
#include "properties/testing/outcome.h"

namespace rematch {
namespace {

/// FNV-1a over the JSON of the first 100 cases.
std::uint64_t fingerprint(Mix mix, std::uint64_t seed) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (std::uint64_t i = 0; i < 100; ++i) {
    for (const char ch : to_json(generate_case(mix, seed, i))) {
      hash = (hash ^ static_cast<unsigned char>(ch)) * 0x100000001b3U;
    }
  }
  return hash;
}

}  // namespace

TEST_CASE("every generated case is valid, and where nothing requires grad it needs no backward") {
  for (const Mix mix : {Mix::standard, Mix::wide}) {
    for (std::uint64_t i = 0; i < 30000; ++i) {
      const Case c = generate_case(mix, 11, i);
      INFO(to_json(c));
      REQUIRE_NOTHROW(validate(c));
      if (loss_requires_grad(c)) continue;
      REQUIRE(mix == Mix::wide);
      REQUIRE(c.protocol.failure == InjectedFailure{});
      REQUIRE_FALSE((c.protocol.partial || c.protocol.auxiliary_losses));
    }
  }
}

TEST_CASE("each mix keeps its floor of every feature") {
  constexpr int kDraws = 20000;
  for (const Mix mix : {Mix::standard, Mix::wide}) {
    std::array<int, kFeatureCount> found{};
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const Case c = generate_case(mix, 23, i);
      const FeatureSet features = features_of(c, validate(c));
      for (std::size_t f = 0; f < kFeatureCount; ++f)
        found[f] += features.contains(Feature(f)) ? 1 : 0;
    }
    for (std::size_t f = 0; f < kFeatureCount; ++f) {
      INFO(to_string(mix) << " " << to_string(Feature(f)) << " " << found[f]);
      CHECK(found[f] >= floor(mix, Feature(f)) * kDraws);
    }
  }
}

TEST_CASE("of the wide mix, one case in 200 or more has a head that is tied to its embedding") {
  constexpr int kDraws = 20000;
  int found = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const Case c = generate_case(Mix::wide, 29, i);
    found += std::any_of(c.layers.begin(), c.layers.end(), [&](const LayerSpec& l) {
      return l.tied_to == 0 && c.layers[0].kind == LayerKind::embedding;
    });
  }
  INFO(found);
  CHECK(found >= kDraws / 200);
}

TEST_CASE("the wide mix has a floor for every feature, at least one case in 200") {
  for (std::size_t f = 0; f < kFeatureCount; ++f) {
    // Only a subject that has layers of its own gets them.
    if (Scope::of_subjects().contains(Feature(f))) continue;
    INFO(to_string(Feature(f)));
    // A rare tail is enough of what is large, and of what one law alone looks at.
    using enum Feature;
    const FeatureSet tail{more_than_a_few, large_values_check, operand_changed};
    CHECK(floor(Mix::wide, Feature(f)) >= (tail.contains(Feature(f)) ? 0.0005 : 0.005));
  }
}

TEST_CASE("cases have features within the given ones only, and each that is left") {
  // Every feature that can be left out by itself, then several at once.
  std::vector<FeatureSet> restrictions;
  for (std::size_t f = 0; f < kFeatureCount; ++f) {
    restrictions.push_back(FeatureSet::all().without({Feature(f)}));
  }
  using enum Feature;
  restrictions.push_back(
      FeatureSet::all().without({non_reentrant, images, adam, float64, injected_failure}));
  restrictions.push_back(FeatureSet::all().without({reentrant, eval_mode, explicit_segments}));
  for (const FeatureSet& within : restrictions) {
    for (std::uint64_t i = 0; i < 40; ++i) {
      const Case c = generate_case(Mix::wide, 19, i, within);
      const FeatureSet found = features_of(c, validate(c));
      INFO(to_json(c));
      REQUIRE(within.contains_all(found));
    }
  }
}

TEST_CASE("a subject that takes structures gets each of them, in one case of 100 or more") {
  constexpr int kDraws = 5000;
  const Scope scope(FeatureSet::all());
  using enum Feature;
  const std::array structures{nested_inputs, keyword_inputs, emptied_inputs, nested_outputs};
  std::array<int, structures.size()> found{};
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const Case c = generate_case(Mix::wide, 31, i, scope);
    const FeatureSet features = features_of(c, validate(c));
    for (std::size_t k = 0; k < structures.size(); ++k) {
      found[k] += features.contains(structures[k]) ? 1 : 0;
    }
  }
  for (std::size_t k = 0; k < structures.size(); ++k) {
    INFO(to_string(structures[k]));
    CHECK(found[k] >= kDraws / 100);
  }
}

TEST_CASE("what cannot be drawn is an error that names it") {
  const auto without = FeatureSet::all().without({Feature::sgd});
  CHECK(testing::message_of([&] { generate_case(Mix::standard, 1, 1, without); }) ==
        "[generate] no case of the standard mix does without: sgd");
}

TEST_CASE("features that a subject lacks have no floor") {
  const FeatureSet within = FeatureSet::all().without({Feature::non_reentrant, Feature::relu});
  CHECK(floor(Mix::wide, Feature::selective, within) == 0);
  CHECK(floor(Mix::wide, Feature::kept_draw_before_draw, within) == 0);
  CHECK(floor(Mix::wide, Feature::in_place_at_segment_end, within) == 0);
  CHECK(floor(Mix::wide, Feature::nested_3, within) > 0);
  CHECK(floor(Mix::wide, Feature::nested_3, within) < floor(Mix::wide, Feature::nested_3));
}

TEST_CASE("a generated case depends on mix, seed and index alone, on every machine") {
  // A change of these numbers changes what every seed in old reports means: say so in the log.
  CHECK(fingerprint(Mix::standard, 1) == 0xb5351613a7ab9585U);
  CHECK(fingerprint(Mix::wide, 1) == 0x9c2573312bbb6dbcU);
  CHECK(generate_case(Mix::wide, 5, 7) == generate_case(Mix::wide, 5, 7));
}

TEST_CASE("options change nothing else in a case, and are drawn as often as they say") {
  Scope with_options;
  with_options.options = {{"mode", {"default", "fast", "slow"}, 0.25},
                          {"promise", {"none", "nested"}, 0.5}};
  constexpr int kCases = 2000;
  for (const std::uint64_t per_shape : {1, 20}) {
    with_options.cases_per_shape = per_shape;
    Scope without;
    without.cases_per_shape = per_shape;
    std::map<std::string, int> count;
    for (std::uint64_t i = 0; i < kCases; ++i) {
      Case c = generate_case(Mix::wide, 4, i, with_options);
      for (const auto& [name, value] : c.options) ++count[value];
      c.options.clear();
      REQUIRE(c == generate_case(Mix::wide, 4, i, without));
    }
    CHECK(count.size() == 3);
    // Five standard deviations.
    CHECK(std::abs(count["fast"] - kCases / 8) < 75);
    CHECK(std::abs(count["slow"] - kCases / 8) < 75);
    CHECK(std::abs(count["nested"] - kCases / 2) < 112);
  }
}

TEST_CASE("different seeds and different indices give different cases") {
  CHECK(fingerprint(Mix::wide, 1) != fingerprint(Mix::wide, 2));
  CHECK_FALSE(generate_case(Mix::wide, 1, 0) == generate_case(Mix::wide, 1, 1));
}

TEST_CASE("but for a rare tail the wide mix has 2 to 24 layers and reaches both ends") {
  std::size_t fewest = 100;
  std::size_t most = 0;
  const FeatureSet within = FeatureSet::all().without({Feature::more_than_a_few});
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const std::size_t layers = generate_case(Mix::wide, 2, i, within).layers.size();
    fewest = std::min(fewest, layers);
    most = std::max(most, layers);
  }
  CHECK(fewest == 2);
  CHECK(most == 24);
}

TEST_CASE("the tail of the wide mix has many of everything") {
  std::size_t layers = 0;
  std::size_t segments = 0;
  std::size_t values = 0;
  int uses = 0;
  int streams = 0;
  int forwards = 0;
  std::int64_t elements = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    DrawSource draw(8, i);
    Case c;
    draw_wide_tail(draw, c);
    const Geometry g = validate(c);
    INFO(to_json(c));
    REQUIRE(features_of(c, g).contains(Feature::more_than_a_few));
    layers = std::max(layers, c.layers.size());
    segments = std::max(segments, segments_of(c).size());
    for (const auto& live : g.live) values = std::max(values, live.size());
    for (const ParameterInfo& p : g.parameters) uses = std::max(uses, p.uses);
    streams = std::max(streams, streams_of(c));
    forwards = std::max(forwards, std::max(c.protocol.steps, c.protocol.microbatches));
    for (const auto& outputs : g.outputs) elements = std::max(elements, outputs[0].elements());
  }
  CHECK(layers > 130);
  CHECK(segments > 100);
  CHECK(values > 100);
  CHECK(uses > 130);
  CHECK(streams > 50);
  CHECK(forwards > 60);
  CHECK(elements > 1 << 18);
}

TEST_CASE("the wide mix reaches a second block in every kind that has one") {
  std::array<int, kLayerKinds> reached{};
  std::array<int, kLayerKinds> seen{};
  for (std::uint64_t i = 0; i < 60000; ++i) {
    const Case c = generate_case(Mix::wide, 37, i);
    const Geometry g = validate(c);
    if (!features_of(c, g).contains(Feature::second_block)) continue;
    for (std::size_t l = 0; l < c.layers.size(); ++l) {
      const auto kind = static_cast<std::size_t>(c.layers[l].kind);
      ++seen[kind];
      reached[kind] += works_in_blocks(c, g, static_cast<int>(l)) ? 1 : 0;
    }
  }
  for (std::size_t k = 0; k < kLayerKinds; ++k) {
    const Layer& layer = layer_of(static_cast<LayerKind>(k));
    INFO(layer.name << " " << reached[k] << " of " << seen[k]);
    LayerSpec draws;
    draws.p = 0.5;
    const bool has_blocks = layer.in_blocks != nullptr || layer.draws(draws);
    CHECK(has_blocks == (reached[k] > 0));
  }
}

}  // namespace rematch
