#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "properties/case/features.h"
#include "properties/case/geometry.h"
#include "properties/case/json.h"
#include "properties/generate/mix.h"
#include "properties/generate/shrink.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

using Extents = std::vector<std::int64_t>;

Scope with(std::vector<const CustomLayer*> layers) {
  return {FeatureSet::all(), std::move(layers)};
}

}  // namespace

TEST_CASE("a declaration says what a custom layer takes, returns and does") {
  const CustomLayer* gru = declared("gru: N 2C -> N 3C; parameters, draws");
  CHECK(gru->name == "gru");
  CHECK(gru->parameters);
  CHECK(gru->draws);
  CHECK_FALSE(gru->draws_elsewhere);
  CHECK_FALSE(gru->state);
  CHECK(gru->result_for(Shape{5, 4}) == Extents{5, 6});
  CHECK(gru->result_for(Shape{5, 3}).empty());
  CHECK(gru->result_for(Shape{5, 4, 1, 1}).empty());
  const CustomLayer* square = declared("square:N C H H -> N 7");
  CHECK(square->result_for(Shape{2, 3, 4, 4}) == Extents{2, 7});
  CHECK(square->result_for(Shape{2, 3, 4, 5}).empty());
  CHECK(declared("noise: N C -> N C; draws elsewhere")->draws);
  const CustomLayer* any = declared("nn.GRU.3: N ... -> N ...; parameters");
  CHECK(any->family() == "nn.GRU");
  CHECK(any->parameters);
  CHECK(any->result_for(Shape{5, 4, 1}) == Extents{5, 4, 1});
}

TEST_CASE("equal declarations are one layer") {
  CHECK(declared("a: N C -> N C") == declared("a: N C -> N C"));
  CHECK(declared("a: N C -> N C") != declared("a: N C -> N C; state"));
}

TEST_CASE("a declaration that says nothing sensible is refused with the form") {
  using Catch::Matchers::ContainsSubstring;
  for (const char* text : {"",
                           "gru",
                           "gru: N C",
                           ": N C -> N C",
                           "g u: N C -> N C",
                           "gru: N C -> M C",
                           "gru: N C -> N D",
                           "gru: N -> N",
                           "gru: N C H W D -> N",
                           "gru: N C -> N 0C",
                           "gru: N C -> N -1",
                           "gru: N C -> N 99999999999999999999",
                           "gru: N C -> N 2c",
                           "gru: 2N C -> 2N C",
                           "gru: N C -> C N",
                           "gru: N C -> N C; sings",
                           "gru: N C -> N C C2",
                           "gru: N ... -> N C",
                           "gru: N C ... -> N C ...",
                           "gru: ... -> ..."}) {
    INFO(text);
    CHECK_THROWS_WITH(declared(text), ContainsSubstring("in the form"));
  }
  CHECK_THROWS_AS(declared(std::string(1000, 'x')), std::invalid_argument);
}

TEST_CASE("cases have the custom layers of their scope, and no others") {
  const Scope scope = with({declared("one: N C -> N 2C; parameters"),
                            declared("two: N C H W -> N C H W; state, draws elsewhere")});
  std::set<const CustomLayer*> seen;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const Case c = generate_case(Mix::wide, 5, i, scope);
    const Geometry geometry = validate(c);
    for (const LayerSpec& l : c.layers) {
      CHECK((l.kind == LayerKind::custom) == (l.layer != nullptr));
      if (l.layer != nullptr) seen.insert(l.layer);
    }
    INFO(to_json(c));
    CHECK(case_from_json(to_json(c)) == c);
    const FeatureSet features = features_of(c, geometry);
    if (features.contains(Feature::custom)) {
      for (const Case& smaller : shrink_candidates(c, scope)) validate(smaller);
    }
  }
  CHECK(seen == std::set(scope.custom.begin(), scope.custom.end()));
  for (std::uint64_t i = 0; i < 200; ++i) {
    for (const LayerSpec& l : generate_case(Mix::wide, 5, i).layers) CHECK(l.layer == nullptr);
  }
}

TEST_CASE("what a custom layer declares becomes features of the case") {
  const auto features = [](const std::string& declaration, bool eval) {
    Case c;
    c.input = {2, 3};
    LayerSpec layer;
    layer.kind = LayerKind::custom;
    layer.layer = declared(declaration);
    layer.eval = eval;
    c.layers = {layer};
    c.plan.segments = {{0, 1, {}, {}}};
    return features_of(c, validate(c));
  };
  CHECK(features("a: N C -> N C; state", false).contains(Feature::stateful_layer));
  CHECK_FALSE(features("a: N C -> N C; state", true).contains(Feature::stateful_layer));
  CHECK(features("a: N C -> N C; draws", false).contains(Feature::draws_in_checkpointed_segment));
  CHECK_FALSE(features("a: N C -> N C; draws", false).contains(Feature::named_stream));
  CHECK(features("a: N C -> N C; draws elsewhere", false).contains(Feature::named_stream));
  CHECK_FALSE(features("a: N C -> N C; draws elsewhere", true).contains(Feature::named_stream));
}

TEST_CASE("a class of many samples is drawn no more often than one of its own") {
  std::vector<const CustomLayer*> layers = {declared("one: N ... -> N ...")};
  for (int i = 0; i < 100; ++i)
    layers.push_back(declared("nn.Many." + std::to_string(i) + ": N ... -> N ..."));
  layers.push_back(declared("nn.Few.0: N ... -> N ..."));
  const Scope scope = with(std::move(layers));
  std::map<std::string_view, int> drawn;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    for (const LayerSpec& l : generate_case(Mix::wide, 5, i, scope).layers)
      if (l.layer != nullptr) ++drawn[l.layer->family()];
  }
  REQUIRE(drawn.size() == 3);
  CHECK(drawn["one"] > drawn["nn.Many"]);
  CHECK(2 * drawn["nn.Few"] > drawn["nn.Many"]);
}

}  // namespace rematch
