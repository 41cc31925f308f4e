#include "properties/record/case_data.h"

#include <catch2/catch_test_macros.hpp>
#include <set>

#include "properties/case/json.h"

namespace rematch {
TEST_CASE("tokens are integers below the vocabulary, whatever the dtype of the case") {
  Case c = case_from_json(R"({"format": 1, "seed": 3, "input": [40, 5], "layers": [
      {"kind": "embedding", "features": 2, "vocabulary": 7}]})");
  Generator single{c.seed, kInputStream, 0};
  const Tensor tokens = make_input(c, single);
  CHECK(tokens.dtype() == DType::int32);
  CHECK(tokens.shape() == Shape{40, 5});
  std::set<double> seen;
  for (const double token : tokens.to_vector()) seen.insert(token);
  CHECK(seen == std::set<double>{0, 1, 2, 3, 4, 5, 6});
  c.dtype = DType::float64;
  Generator other{c.seed, kInputStream, 0};
  CHECK(make_input(c, other).to_vector() == tokens.to_vector());
  CHECK(converted(tokens, DType::float64).dtype() == DType::int32);
}

}  // namespace rematch
