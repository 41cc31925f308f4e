// checkpoint_sequential(): which layers are checkpointed.
#include "engine/checkpoint/sequential.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "golden/semantics/testing/rules.h"
#include "golden/semantics/testing/situations.h"

namespace rematch::golden {
namespace {

using nlohmann::json;

CheckpointOptions variant(Way way) {
  CheckpointOptions options;
  options.reentrant = way == Way::reentrant;
  return options;
}

/// Layers of tanh that count their runs and note their order.
struct Layers {
  explicit Layers(int count) : runs(static_cast<std::size_t>(count)) {
    for (int i = 0; i < count; ++i) {
      functions.push_back([this, i](const Tensors& in) -> Tensors {
        ++runs[static_cast<std::size_t>(i)];
        log.push_back(i);
        return {tanh(in[0])};
      });
    }
  }
  std::string digits() const {
    std::string all;
    for (const int n : runs) all += std::to_string(n);
    return all;
  }

  std::vector<int> runs;
  std::vector<int> log;
  std::vector<Function> functions;
};

std::string runs_of(int layers, int segments, Way way = Way::non_reentrant) {
  Layers model(layers);
  backward(sum(checkpoint_sequential(model.functions, segments, {variable({0.5, -0.25})},
                                     LastSegment::stored, variant(way))[0]));
  return model.digits();
}

/// Draws of four layers in two segments, and what the random state is after a step.
json draws(bool preserve) {
  json facts;
  for (const Way way : kVariants) {
    CheckpointOptions options = variant(way);
    options.preserve_rng = preserve;
    std::vector<std::vector<Generator>> draws;
    const Function layer = [&](const Tensors& in) -> Tensors {
      draws.push_back(random_state());
      return {dropout(in[0], 0.5)};
    };
    const std::vector<Function> layers(4, layer);
    const Tensor y =
        sum(checkpoint_sequential(layers, 2, {ramp({4, 4})}, LastSegment::stored, options)[0]);
    const auto before = random_state();
    backward(y);
    json begin = json::array();
    for (std::size_t i = 4; i < draws.size(); ++i) begin.push_back(draws[i] == draws[i - 4]);
    facts[to_string(way) + "_draws"] = draws.size();
    facts[to_string(way) + "_recomputes_begin_where_the_forward_did"] = begin;
    facts[to_string(way) + "_state_kept_by_backward"] = before == random_state();
  }
  return facts;
}

}  // namespace

RULE("PT1",
     "all segments but the last have floor(n / k) layers and run twice, the rest runs once") {
  for (const Way way : kVariants) {
    json facts;
    for (int n = 1; n <= 12; ++n) {
      json& row = facts["layers_" + std::to_string(n)];
      for (int k = 1; k <= n; ++k) row.push_back(runs_of(n, k, way));
    }
    seen.add("PT1." + to_string(way), facts);
  }
}

RULE("PT2", "with one segment nothing is checkpointed, silently") {
  HookCounter hooks;
  const std::int64_t warnings = frozen_checkpoint_warnings();
  const std::string runs = runs_of(3, 1);
  seen.add("PT2.one_segment",
           {{"runs", runs}, {"surrounding_packs", hooks.packs}, {"warnings", json::array()}});
  CHECK(frozen_checkpoint_warnings() == warnings);
}

RULE("PT3", "invalid numbers of segments are refused") {
  json facts;
  const auto error = [](int layers, int segments) {
    return outcome([=] { runs_of(layers, segments); });
  };
  facts["more_segments_than_layers_error"] = error(3, 4);
  facts["no_segments_error"] = error(3, 0);
  facts["no_layers_error"] = error(0, 1);
  facts["no_layers_two_segments_error"] = error(0, 2);
  facts["negative_segments_error"] = error(3, -1);
  seen.add("PT3.degenerate", facts);
}

RULE("PT4", "segments are recomputed last first, the layers of each in the order of the forward") {
  json facts;
  for (const Way way : kVariants) {
    Layers model(10);
    const Tensor y = sum(checkpoint_sequential(model.functions, 4, {variable({0.5})},
                                               LastSegment::stored, variant(way))[0]);
    facts[to_string(way) + "_forward"] = model.log;
    model.log.clear();
    backward(y);
    facts[to_string(way) + "_backward"] = model.log;
  }
  seen.add("PT4.order", facts);
}

RULE("PT5", "a segment passes on everything that its last function returns") {
  const Function first = [](const Tensors& in) -> Tensors {
    return {scale(in[0], 1), scale(in[0], 2)};
  };
  const Function second = [](const Tensors& in) -> Tensors { return {mul(in[0], in[1])}; };
  const Tensor x = variable({3});
  const std::vector<Function> both{first, second};
  backward(sum(checkpoint_sequential(both, 2, {x})[0]));
  seen.add("PT5.two_values", {{"gradient_of_2xx_at_3", x.grad().item()}});
}

RULE("PT6", "the last segment is stored, and what it draws is not drawn again") {
  json saved;
  for (const Way way : kVariants) {
    Layers model(6);
    const HookCounter hooks;
    checkpoint_sequential(model.functions, 3, {variable({0.5})}, LastSegment::stored, variant(way));
    saved[to_string(way) + "_surrounding_packs"] = hooks.packs;
  }
  seen.add("PT6.last_segment", saved);
  seen.add("PT6.random_state", draws(true));
  seen.add("PT6.not_preserved", draws(false));
}

}  // namespace rematch::golden
