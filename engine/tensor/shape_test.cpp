#include "engine/tensor/shape.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <stdexcept>

namespace rematch {
namespace {

using Catch::Matchers::Message;

TEST_CASE("a negative extent is refused") {
  CHECK_THROWS_MATCHES((Shape{2, -1}), std::invalid_argument,
                       Message("[shape] extents must be >= 0, got -1"));
}

TEST_CASE("a rank above eight is refused") {
  CHECK(Shape{1, 1, 1, 1, 1, 1, 1, 2}.rank() == 8);
  CHECK_THROWS_MATCHES((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), std::invalid_argument,
                       Message("[shape] rank must be at most 8, got 9"));
}

TEST_CASE("element counts stay far from overflow") {
  constexpr std::int64_t most = Shape::kMaxElements;
  CHECK(Shape{most}.elements() == most);
  CHECK(Shape{1 << 20, 1 << 20}.elements() == most);
  CHECK_THROWS_AS((Shape{most + 1}), std::invalid_argument);
  CHECK_THROWS_AS((Shape{1 << 20, (1 << 20) + 1}), std::invalid_argument);
  CHECK_THROWS_AS((Shape{INT64_MAX, INT64_MAX}), std::invalid_argument);
}

}  // namespace
}  // namespace rematch
