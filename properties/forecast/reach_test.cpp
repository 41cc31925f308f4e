#include "properties/forecast/reach.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "properties/case/json.h"

namespace rematch {
namespace {

/// Four linear layers, of which the second and the third are the segment, and what is said of them.
Case four(const std::string& segment = R"("variant": "non_reentrant")",
          const std::string& protocol = "") {
  return case_from_json(
      R"({"format": 1, "seed": 3, "input": [4, 3], "layers": [
          {"kind": "linear", "features": 3, "bias": false},
          {"kind": "linear", "features": 3, "bias": false},
          {"kind": "linear", "features": 3, "bias": false},
          {"kind": "linear", "features": 3, "bias": false}],
          "plan": {"segments": [{"begin": 1, "end": 3, )" +
      segment + R"(}]}, "protocol": {"input_requires_grad": true)" + protocol + "}}");
}

Reach reach_of(const Case& c, int layer, Wrongs wrong) {
  std::vector<bool> at(c.layers.size(), false);
  at[static_cast<std::size_t>(layer)] = true;
  return {c, validate(c), at, wrong};
}

/// Which of the layers, or parameters, differ in the first forward or step.
std::string differing(const Reach& reach, std::string_view law, int step = 0) {
  std::string found;
  for (int i = 0; i < 4; ++i) found += reach.contains(law, {step, 0, i}) ? '1' : '0';
  return found;
}

}  // namespace

TEST_CASE(
    "what a recomputation computes wrong reaches gradients within the segment and before it") {
  const Reach reach =
      reach_of(four("\"variant\": \"non_reentrant\"", ", \"steps\": 2"), 1, {Wrong::recomputed});
  CHECK(differing(reach, "recomputed-values") == "0110");
  CHECK(differing(reach, "parameter-gradients") == "1110");
  CHECK(differing(reach, "outputs") == "0000");
  CHECK(differing(reach, "losses") == "0000");
  // Weights that were trained so differ in the next step, and all behind them.
  CHECK(differing(reach, "parameters-after-step") == "1110");
  CHECK(differing(reach, "outputs", 1) == "1000");
  CHECK(differing(reach, "parameter-gradients", 1) == "1111");
}

TEST_CASE("what a recomputation computes wrong stays in its segment") {
  CHECK(differing(reach_of(four(), 2, {Wrong::recomputed}), "recomputed-values") == "0010");
}

TEST_CASE("what a forward computes wrong reaches all that it computes, and every gradient") {
  const Reach reach = reach_of(four("\"variant\": \"reentrant\""), 2, {Wrong::forward});
  CHECK(differing(reach, "outputs") == "1000");
  CHECK(differing(reach, "parameter-gradients") == "1111");
  CHECK(differing(reach, "buffers-after-step") == "0000");
}

TEST_CASE("a wrong gradient reaches what is before the layer") {
  const Reach reach = reach_of(four(), 1, {Wrong::gradient});
  CHECK(differing(reach, "parameter-gradients") == "1100");
  CHECK(differing(reach, "input-gradients") == "1000");
  CHECK(differing(reach, "recomputed-values") == "0000");
}

TEST_CASE(
    "what takes no part in autograd leaves reentrant segments behind it without, within others") {
  const Case c = case_from_json(
      R"({"format": 1, "seed": 3, "input": [4, 3], "layers": [{"kind": "tanh"},
          {"kind": "linear", "features": 3}, {"kind": "linear", "features": 3}],
          "plan": {"segments": [{"begin": 0, "end": 3, "variant": "non_reentrant", "nested": [
            {"begin": 0, "end": 1, "variant": "reentrant"},
            {"begin": 1, "end": 2, "variant": "reentrant"}]}]}})");
  const Reach reach = reach_of(c, 0, {Wrong::detached});
  CHECK(differing(reach, "parameter-gradients") == "1100");
  CHECK(differing(reach, "parameters-after-step") == "1100");
}

TEST_CASE(
    "a backward within a forward reads what its segment draws again, and nothing before the "
    "source") {
  const Case c = case_from_json(
      R"({"format": 1, "seed": 3, "input": [4, 3], "layers": [{"kind": "linear", "features": 3},
          {"kind": "dropout", "p": 0.5, "stream": 1},
          {"kind": "custom", "layer": "slope: N C -> N C; parameters, backward"}],
          "plan": {"segments": [{"begin": 0, "end": 3, "variant": "non_reentrant"}]}})");
  const Reach reach = reach_of(c, 1, {Wrong::recomputed, Wrong::stream});
  CHECK(differing(reach, "outputs") == "1000");
  CHECK(differing(reach, "rng-after-forward") == "0100");
  CHECK(differing(reach_of(c, 2, {Wrong::state}), "outputs") == "0000");
}

TEST_CASE("clipping spreads a wrong gradient over all parameters, and over no gradients") {
  const Reach reach =
      reach_of(four("\"variant\": \"reentrant\"", ", \"clip\": 0.5"), 1, {Wrong::gradient});
  CHECK(differing(reach, "parameter-gradients") == "1100");
  CHECK(differing(reach, "parameters-after-step") == "1111");
}

TEST_CASE("a random stream that moved on gives later forwards other masks, and no earlier one") {
  const Case c = case_from_json(
      R"({"format": 1, "seed": 3, "input": [4, 3], "layers": [
          {"kind": "dropout", "p": 0.5, "stream": 1}, {"kind": "dropout", "p": 0.5},
          {"kind": "dropout", "p": 0.5, "stream": 1}],
          "plan": {"segments": [{"begin": 0, "end": 1, "variant": "non_reentrant"}]},
          "protocol": {"steps": 2, "input_requires_grad": true}})");
  const Reach reach = reach_of(c, 0, {Wrong::recomputed, Wrong::stream});
  CHECK(differing(reach, "rng-after-forward") == "0000");
  CHECK(differing(reach, "rng-after-backward") == "0100");
  CHECK(differing(reach, "dropout-masks", 1) == "1010");
  CHECK(differing(reach, "outputs") == "0000");
  CHECK(differing(reach, "outputs", 1) == "1000");
}

TEST_CASE("a state that moved on twice reaches its own buffers, and outputs where they are read") {
  const auto of = [](const std::string& kind) {
    const Case c =
        case_from_json(R"({"format": 1, "seed": 3, "input": [4, 3], "layers": [{"kind": ")" + kind +
                       R"("}, {"kind": "batch_norm"}], "plan": {"segments": [
            {"begin": 0, "end": 2, "variant": "non_reentrant"}]},
            "protocol": {"steps": 2, "input_requires_grad": true}})");
    return reach_of(c, 0, {Wrong::state});
  };
  CHECK(differing(of("batch_norm"), "buffers-after-step") == "1100");
  CHECK(differing(of("batch_norm"), "outputs", 1) == "0000");
  CHECK(differing(of("delayed_scaling"), "outputs", 1) == "1000");
}

TEST_CASE("other values that decide how many rows a branch gets may end in an error") {
  const auto may_fail = [](const std::string& kind) {
    const Case c = case_from_json(
        R"({"format": 1, "seed": 3, "input": [4, 3], "layers": [{"kind": "tanh"}, {"kind": ")" +
        kind + R"("}], "plan": {"segments": [{"begin": 0, "end": 2, "variant": "non_reentrant"}]},
            "protocol": {"input_requires_grad": true}})");
    return reach_of(c, 0, {Wrong::recomputed}).contains("errors", {});
  };
  CHECK(may_fail("early_exit"));
  CHECK_FALSE(may_fail("tanh"));
}

TEST_CASE("what is only held, or run again, changes no number") {
  const Reach reach = reach_of(four(), 1, {Wrong::runs, Wrong::held});
  CHECK(differing(reach, "executions") == "0110");
  CHECK(differing(reach, "collectives") == "0110");
  CHECK_FALSE(reach.contains("collectives", {0, 0, -1}));
  CHECK(reach.contains("saved-at-most", {}));
  CHECK_FALSE(reach.contains("live-bytes", {}));
  for (const std::string_view law : {"outputs", "parameter-gradients", "input-gradients"}) {
    CHECK(differing(reach, law) == "0000");
  }
}

}  // namespace rematch
