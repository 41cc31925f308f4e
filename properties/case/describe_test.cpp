#include "properties/case/describe.h"

#include <catch2/catch_test_macros.hpp>

#include "properties/case/json.h"

namespace rematch {

TEST_CASE("a sequential case reads as a sentence with brackets around its segments") {
  const Case c = case_from_json(R"({"format": 1, "seed": 42, "input": [4, 7], "layers": [
      {"kind": "linear", "features": 5}, {"kind": "dropout", "p": 0.5},
      {"kind": "linear", "features": 3}],
      "plan": {"sequential": {"segments": 3, "variant": "reentrant"}},
      "protocol": {"steps": 2, "input_requires_grad": true}})");
  CHECK(describe(c) ==
        "float32 [4, 7] -> [0: linear 5] -> [1: dropout 0.5] -> 2: linear 3\n"
        "plan: sequential, 3 segments, reentrant\n"
        "protocol: 2 steps, input requires grad, mse, sgd, learning rate 0.05\n"
        "seed 42\n");
}

TEST_CASE("nested segments read as nested brackets with their options") {
  const Case c = case_from_json(R"({"format": 1, "input": [4, 6], "layers": [
      {"kind": "split", "features": 2}, {"kind": "relu"}, {"kind": "concat", "from": [0, 1]}],
      "plan": {"segments": [{"begin": 0, "end": 2, "early_stop": false, "nested": [
        {"begin": 1, "end": 2, "variant": "reentrant", "preserve_rng": false}]}]},
      "protocol": {"microbatches": 3, "forwards_first": true, "train": false}})");
  CHECK(describe(c) ==
        "float32 [4, 6] -> [0: split 2 -> [1: relu]] -> 2: concat from 0.1\n"
        "plan: layers 0..1 non_reentrant, no early stop {layer 1 reentrant, random state not "
        "preserved}\n"
        "protocol: 1 step, 3 microbatches a step, forwards first, eval mode, mse, sgd, "
        "learning rate 0.05\n"
        "seed 0\n");
}

TEST_CASE("what a segment is handed and returns is said where it is no list of tensors") {
  const Case c = case_from_json(R"({"format": 1, "input": [1, 2], "layers": [
      {"kind": "tanh"}, {"kind": "relu"}], "plan": {"segments": [
        {"begin": 0, "end": 1, "arguments": "keywords"},
        {"begin": 1, "end": 2, "arguments": "emptied", "nested_outputs": true}]}})");
  const std::string plan =
      "plan: layer 0 non_reentrant, arguments (keywords); "
      "layer 1 non_reentrant, arguments (emptied), outputs in a dictionary\n";
  INFO(describe(c));
  CHECK(describe(c).find(plan) != std::string::npos);
}

TEST_CASE("options of the subject are said, where a case sets any") {
  const Case c = case_from_json(R"({"format": 1, "input": [1, 2], "layers": [{"kind": "tanh"}],
      "options": {"promise": "early_stop", "mode": "static_graph"}})");
  INFO(describe(c));
  CHECK(describe(c).ends_with("\noptions: mode = static_graph, promise = early_stop\nseed 0\n"));
}

}  // namespace rematch
