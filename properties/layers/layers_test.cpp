#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>

#include "properties/case/geometry.h"
#include "properties/case/json.h"
#include "properties/forecast/engine_facts.h"
#include "properties/generate/mix.h"
#include "properties/layers/layer.h"

namespace rematch {

TEST_CASE("what a kind of layer says of itself is what its shapes state") {
  std::array<int, kLayerKinds> seen{};
  const Scope scope(FeatureSet::all(), {declared("all: N C -> N C; parameters, state")});
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const Case c = generate_case(Mix::wide, 41, i, scope);
    const Geometry g = validate(c);
    Facts facts;
    engine_facts(c, g, true, facts);
    INFO(to_json(c));
    for (std::size_t l = 0; l < c.layers.size(); ++l) {
      const LayerSpec& spec = c.layers[l];
      const Layer& layer = layer_of(spec);
      INFO("layer " << l);
      ++seen[static_cast<std::size_t>(spec.kind)];
      const bool buffers =
          std::any_of(g.buffers.begin(), g.buffers.end(),
                      [&](const ParameterInfo& b) { return b.layer == static_cast<int>(l); });
      REQUIRE(g.outputs[l].size() == static_cast<std::size_t>(layer.outputs));
      REQUIRE(g.layer_parameters[l].empty() == !layer.has_parameters);
      REQUIRE(buffers == layer.stateful);
      const bool reads = facts.of(static_cast<int>(l)).state_bytes > 0;
      // In evaluation a state may be an operand like any other.
      if (reads || trains_in(spec, c.protocol.train)) REQUIRE(reads == layer.reads_state);
      REQUIRE(spec.from.size() + 1 == static_cast<std::size_t>(layer.operands));
    }
  }
  for (std::size_t k = 0; k < kLayerKinds; ++k) {
    INFO(to_string(static_cast<LayerKind>(k)));
    CHECK(seen[k] > 0);
  }
}

TEST_CASE("a kind that can do something has the field for it") {
  std::set<std::string_view> names;
  for (std::size_t k = 0; k < kLayerKinds; ++k) {
    LayerSpec spec;
    spec.kind = static_cast<LayerKind>(k);
    const Layer& layer = layer_of(spec);
    INFO(layer.name);
    CHECK(names.insert(layer.name).second);
    CHECK(layer_kind(layer.name) == spec.kind);
    spec.p = layer.takes("p") ? 0.5 : 0;
    // Whether a custom layer draws, and from where, its declaration says.
    if (spec.kind != LayerKind::custom) CHECK(layer.draws(spec) == layer.takes("stream"));
    CHECK(layer.has_parameters == layer.takes("frozen"));
    // The modes differ in draws and in states.
    const bool has_modes = layer.takes("stream") || layer.stateful;
    CHECK(layer.takes("eval") == has_modes);
    CHECK((layer.operands > 1) == layer.takes("from"));
    CHECK((layer.operands > 1) == (layer.fits != nullptr));
    CHECK(layer.takes_tokens() == !layer.on_numbers.empty());
    CHECK((layer.bounds == nullptr) == (spec.kind == LayerKind::custom));
    CHECK((layer.on_rows.empty() || layer_of(layer_kind(layer.on_rows)).weights.rows > 0));
  }
  CHECK_THROWS_AS(layer_kind("frobnicate"), std::invalid_argument);
}

}  // namespace rematch
