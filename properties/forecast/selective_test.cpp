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
  const Case c = kept({layer("tanh"), layer("gelu"), layer("tanh")}, {{"tanh", 1}});
  CHECK(forecast_of(c).executions == Counts{2, 2, 2});
  CHECK(forecast_of(c).computations == Counts{2, 2, 1});
}

TEST_CASE("layers that make no tensors compute nothing") {
  LayerSpec in_place = layer("relu");
  in_place.in_place = true;
  LayerSpec off = layer("dropout");
  off.p = 0;
  const Case c =
      kept({layer("flatten"), dense(3), in_place, off, layer("duplicate"), layer("tanh")}, {});
  CHECK(forecast_of(c).computations == Counts{0, 2, 0, 0, 0, 2});
}

TEST_CASE("a kept result counts with all that its op made, beside the segment's inputs") {
  const auto saved = [](std::vector<KeepSpec> keep) {
    return forecast_of(kept({layer("tanh"), layer("dropout"), layer("layer_norm"), layer("tanh")},
                            std::move(keep)))
        .saved_bytes;
  };
  // The loss saves the output of the last layer.
  const std::int64_t base = saved({});
  CHECK(saved({{"tanh", 0}}) == base + kRow);
  CHECK(saved({{"tanh", -1}}) == base + kRow);
  CHECK(saved({{"tanh", 2}}) == base);
  CHECK(saved({{"dropout", 0}}) == base + kRow + 6);
  CHECK(saved({{"layer_norm", 0}}) == base + kRow + 2 * 2 * 4);
}

TEST_CASE("a segment that saves nothing keeps nothing, whatever its policy wants") {
  Case c = kept({layer("tanh"), dense(3)}, {{"tanh", -1}});
  c.protocol.input_requires_grad = false;
  c.layers[1].frozen = true;
  CHECK(forecast_of(c).saved_bytes == 0);
}

TEST_CASE("the index of a policy counts ops of that name in their segment") {
  LayerSpec off = layer("dropout");
  off.p = 0;
  Case c = kept({layer("dropout"), off, layer("dropout")}, {{"dropout", 1}});
  CHECK_FALSE(kept_by_policy(c, 0));
  CHECK_FALSE(kept_by_policy(c, 1));
  CHECK(kept_by_policy(c, 2));
  c.plan.segments[0].begin = 1;
  CHECK_FALSE(kept_by_policy(c, 2));
  c.protocol.train = false;
  CHECK(ops_of(c.layers[0], false).empty());
}

TEST_CASE("each stream advances by the draws of the layers that draw from it") {
  LayerSpec second = layer("rrelu");
  second.stream = 2;
  const Case c = case_of({2, 3}, {layer("dropout"), second, dense(3)});
  CHECK(forecast_of(c).draws_per_forward == std::vector<std::uint64_t>{8, 0, 8});
}

}  // namespace
}  // namespace rematch
