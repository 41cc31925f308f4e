#include "properties/hunt/like_fault.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <string_view>

#include "properties/case/features.h"
#include "properties/case/json.h"
#include "properties/faults/fault.h"

namespace rematch {
namespace {

/// A scale that the recomputation reads too late, so that what the model trains on differs.
Case scaled(AutocastSpan autocast) {
  Case c = case_from_json(
      R"({"format": 1, "seed": 2810407229, "input": [3, 1],
          "layers": [{"kind": "delayed_scaling", "fp8": true}, {"kind": "linear", "features": 5},
                     {"kind": "rms_norm"}],
          "plan": {"segments": [{"begin": 0, "end": 2, "variant": "reentrant"}]},
          "protocol": {"steps": 3, "input_requires_grad": true, "optimizer": "adam"}})");
  c.protocol.autocast = autocast;
  return c;
}

bool explained(AutocastSpan autocast, double distance) {
  const Case c = scaled(autocast);
  const Violation seen{"outputs", "step 2, microbatch 0, output 0, element 11",
                       "0.64453125 (0x3f25)", "0.640625 (0x3f24)", distance};
  return is_like_fault(seen, c, features_of(c, validate(c)), *find_fault("S10"));
}

bool explained_at(AutocastSpan autocast, const std::string& place) {
  const Case c = scaled(autocast);
  const Violation seen{"buffers-after-step", place, "0.5 (0x3f00)", "0.75 (0x3f40)", 0.5};
  return is_like_fault(seen, c, features_of(c, validate(c)), *find_fault("S10"));
}

}  // namespace

TEST_CASE(
    "casts to bfloat16 may hide the first array that a fault changes, and add none before it") {
  const std::string first = "step 0, buffer 0 (layer 0 history)";
  const std::string later = "step 1, buffer 0 (layer 0 history)";
  REQUIRE(explained_at(AutocastSpan::off, first));
  CHECK_FALSE(explained_at(AutocastSpan::off, later));
  CHECK(explained_at(AutocastSpan::forward, later));
  CHECK_FALSE(explained_at(AutocastSpan::forward, "model, buffer 0"));
}

TEST_CASE("where casts to bfloat16 hide a fault, a difference of one step of it is like it") {
  CHECK(explained(AutocastSpan::forward, 1.0 / 256));
  // Other elements differ by more than the first.
  CHECK_FALSE(explained(AutocastSpan::forward, 1.0 / 16));
}

TEST_CASE("a norm of groups of one element multiplies a rounding, of which the sign says nothing") {
  const auto is_explained = [](std::string_view law, const std::string& expected) {
    const Case c = case_from_json(
        R"({"format": 1, "seed": 1969604937, "input": [1, 3], "layers": [
            {"kind": "group_norm", "groups": 3}, {"kind": "delayed_scaling"}, {"kind": "layer_norm"}],
            "plan": {"segments": [{"begin": 1, "end": 2, "variant": "reentrant"}]},
            "protocol": {"input_requires_grad": true}})");
    const Violation seen{law, "step 0, microbatch 0, element 0", expected, "0 (0x00000000)",
                         0.03125};
    return is_like_fault(seen, c, features_of(c, validate(c)), *find_fault("S10"));
  };
  CHECK(is_explained("input-gradients", "3.05175781e-05 (0x38000000)"));
  CHECK_FALSE(is_explained("input-gradients", "0.03125 (0x3d000000)"));
  CHECK_FALSE(is_explained("dropout-masks", "3.05175781e-05 (0x38000000)"));
}

TEST_CASE("the engine does not tell what becomes of a segment that it never recomputes") {
  const auto explained = [](const std::string& more, const std::string& steps) {
    const Case c = case_from_json(
        R"({"format": 1, "seed": 3, "input": [1, 1, 2],
            "layers": [{"kind": "kv_cache", "kept": 4}, {"kind": "rotary", "features": 2})" +
        more + R"(],
            "plan": {"sequential": {"segments": 1, "last_stored": false, "early_stop": false}},
            "protocol": {"input_requires_grad": true, "steps": )" +
        steps + "}}");
    const Violation seen{"losses", "step 0, microbatch 0, loss, element 0", "0.75 (0x3f40)",
                         "0.5 (0x3f00)", 0.5};
    return is_like_fault(seen, c, features_of(c, validate(c)), *find_fault("S10"));
  };
  // In the engine neither layer saves anything. In PyTorch rotary saves tables.
  CHECK(explained("", "2"));
  // A tanh saves its output, and the engine keeps the loss of the only step.
  CHECK_FALSE(explained(R"(, {"kind": "tanh"})", "1"));
}

}  // namespace rematch
