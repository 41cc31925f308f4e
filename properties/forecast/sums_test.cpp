#include "properties/forecast/sums.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "properties/case/json.h"
#include "properties/forecast/engine_facts.h"

namespace rematch {
namespace {

Case read(const std::string& layers, const std::string& plan) {
  return case_from_json(R"({"format": 1, "input": [2, 4], "layers": [)" + layers +
                        R"(], "plan": )" + plan + "}");
}

const std::string kLinear = R"({"kind": "linear", "features": 4})";
const std::string kRelu = R"({"kind": "relu"})";

}  // namespace

TEST_CASE("a sum crosses a segment if what is summed is used within it and outside") {
  const auto crosses = [](const std::string& layers, int begin, int end) {
    const Case c =
        read(layers, R"({"segments": [{"begin": )" + std::to_string(begin) + R"(, "end": )" +
                         std::to_string(end) + R"(, "variant": "non_reentrant"}]})");
    const Geometry geometry = validate(c);
    Facts facts;
    engine_facts(c, geometry, true, facts);
    return sums_across_segments(c, geometry, facts);
  };
  const std::string chain = kRelu + "," + kRelu + "," + kRelu;
  CHECK_FALSE(crosses(chain, 0, 2));
  // The input is used by the first and by the last layer.
  const std::string skip = kRelu + "," + kRelu + R"(, {"kind": "add", "from": [-1, 0]})";
  CHECK(crosses(skip, 0, 2));
  CHECK(crosses(skip, 2, 3));
  CHECK_FALSE(crosses(skip, 1, 2));
  CHECK_FALSE(crosses(skip, 0, 3));
  // So it is under another name, and what enters under two gets two gradients.
  const std::string pair = R"({"kind": "duplicate"},)";
  CHECK(crosses(pair + kRelu + R"(, {"kind": "add", "from": [0, 1]})", 1, 2));
  CHECK(crosses(pair + kRelu + R"(, {"kind": "add", "from": [0, 1]})", 1, 3));
  CHECK_FALSE(crosses(pair + kRelu + R"(, {"kind": "add", "from": [0, 1]})", 0, 3));
  CHECK(crosses(pair + kRelu + R"(, {"kind": "add", "from": [0, 1]})", 0, 1));
  // Two summands have one order, three have several.
  const std::string tied = R"({"kind": "linear", "features": 4, "tied_to": 0})";
  CHECK_FALSE(crosses(kLinear + "," + tied, 0, 1));
  CHECK(crosses(kLinear + "," + tied + "," + tied, 0, 2));
}

}  // namespace rematch
