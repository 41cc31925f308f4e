#include <catch2/catch_test_macros.hpp>

#include "properties/case/policy.h"
#include "properties/forecast/testing/small_cases.h"

namespace rematch {
namespace {

using namespace testing;
using Counts = std::vector<int>;

Case kept(std::vector<LayerSpec> layers, std::vector<KeepSpec> keep) {
  const int end = static_cast<int>(layers.size());
  Case c = case_of({2, 3}, std::move(layers));
  c.protocol.input_requires_grad = true;
  c.plan.segments = {segment(0, end, Variant::non_reentrant)};
  c.plan.segments[0].choice.keep = std::move(keep);
  return c;
}

/// [2, 3] in float32.
constexpr std::int64_t kRow = 24;

TEST_CASE("what a policy keeps is computed once, the rest in every execution") {
  const Case c = kept({layer(LayerKind::tanh), layer(LayerKind::gelu), layer(LayerKind::tanh)},
                      {{LayerKind::tanh, 1}});
  CHECK(forecast_of(c).executions == Counts{2, 2, 2});
  CHECK(forecast_of(c).computations == Counts{2, 2, 1});
}

TEST_CASE("layers that make no tensors compute nothing") {
  LayerSpec in_place = layer(LayerKind::relu);
  in_place.in_place = true;
  LayerSpec off = layer(LayerKind::dropout);
  off.p = 0;
  const Case c = kept({layer(LayerKind::flatten), dense(3), in_place, off,
                       layer(LayerKind::duplicate), layer(LayerKind::tanh)},
                      {});
  CHECK(forecast_of(c).computations == Counts{0, 2, 0, 0, 0, 2});
}

TEST_CASE("a kept result counts with all that its op made, beside the segment's inputs") {
  const auto saved = [](std::vector<KeepSpec> keep) {
    return forecast_of(kept({layer(LayerKind::tanh), layer(LayerKind::dropout),
                             layer(LayerKind::layer_norm), layer(LayerKind::tanh)},
                            std::move(keep)))
        .saved_bytes;
  };
  // The loss saves the output of the last layer.
  const std::int64_t base = saved({});
  CHECK(saved({{LayerKind::tanh, 0}}) == base + kRow);
  CHECK(saved({{LayerKind::tanh, -1}}) == base + kRow);
  CHECK(saved({{LayerKind::tanh, 2}}) == base);
  CHECK(saved({{LayerKind::dropout, 0}}) == base + kRow + 6);
  CHECK(saved({{LayerKind::layer_norm, 0}}) == base + kRow + 2 * 2 * 4);
}

TEST_CASE("a segment that saves nothing keeps nothing, whatever its policy wants") {
  Case c = kept({layer(LayerKind::tanh), dense(3)}, {{LayerKind::tanh, -1}});
  c.protocol.input_requires_grad = false;
  c.layers[1].frozen = true;
  CHECK(forecast_of(c).saved_bytes == 0);
}

TEST_CASE("the index of a policy counts ops of that name in their segment") {
  LayerSpec off = layer(LayerKind::dropout);
  off.p = 0;
  Case c =
      kept({layer(LayerKind::dropout), off, layer(LayerKind::dropout)}, {{LayerKind::dropout, 1}});
  CHECK_FALSE(kept_by_policy(c, 0));
  CHECK_FALSE(kept_by_policy(c, 1));
  CHECK(kept_by_policy(c, 2));
  c.plan.segments[0].begin = 1;
  CHECK_FALSE(kept_by_policy(c, 2));
  c.protocol.train = false;
  CHECK(op_of(c, 0).empty());
}

TEST_CASE("each stream advances by the words of the layers that draw from it") {
  LayerSpec second = layer(LayerKind::rrelu);
  second.stream = 2;
  const Case c = case_of({2, 3}, {layer(LayerKind::dropout), second, dense(3)});
  CHECK(forecast_of(c).words_per_forward == std::vector<std::uint64_t>{8, 0, 8});
}

}  // namespace
}  // namespace rematch
