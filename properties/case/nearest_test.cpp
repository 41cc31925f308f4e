#include "properties/case/nearest.h"

#include <catch2/catch_test_macros.hpp>

namespace rematch {
namespace {

const std::vector<std::string> kNames{"engine", "pytorch", "pytorch:reentrant", "jax", "mlx"};

}  // namespace

TEST_CASE("a slip of the finger is understood") {
  for (const char* slip : {"pytroch", "pytorc", "pytorchh", "pxtorch", "pytorch ", "torch"}) {
    INFO(slip);
    CHECK(nearest(slip, kNames) == "pytorch");
  }
  CHECK(nearest("pytorch:renetrant", kNames) == "pytorch:reentrant");
  CHECK(nearest("jqx", kNames) == "jax");
  CHECK(did_you_mean("pytroch", kNames) == "; did you mean pytorch?");
}

TEST_CASE("nothing is suggested that is as far from the text as anything else") {
  for (const char* far : {"", "nobody", "tensorflow", "m", "x", "frobnicate"}) {
    INFO(far);
    CHECK(nearest(far, kNames).empty());
  }
  CHECK(nearest("pytroch", {}).empty());
  CHECK(nearest(std::string(100000, 'p'), kNames).empty());
  CHECK(did_you_mean("nobody", kNames).empty());
}

}  // namespace rematch
