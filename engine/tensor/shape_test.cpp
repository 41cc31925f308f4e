#include "engine/tensor/shape.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <stdexcept>
#include <vector>

namespace rematch {
namespace {

using Catch::Matchers::Message;

TEST_CASE("a shape knows its rank, extents and elements") {
  const Shape shape{2, 3, 4};
  CHECK(shape.rank() == 3);
  CHECK(shape[0] == 2);
  CHECK(shape[2] == 4);
  CHECK(shape.elements() == 24);
  CHECK(to_string(shape) == "[2, 3, 4]");
}

TEST_CASE("a scalar has rank 0 and one element") {
  CHECK(Shape{}.rank() == 0);
  CHECK(Shape{}.elements() == 1);
  CHECK(to_string(Shape{}) == "[]");
}

TEST_CASE("an extent of zero leaves no elements") { CHECK(Shape{3, 0, 5}.elements() == 0); }

TEST_CASE("shapes are equal when rank and extents are") {
  CHECK(Shape{2, 3} == Shape{2, 3});
  CHECK_FALSE(Shape{2, 3} == Shape{3, 2});
  CHECK_FALSE(Shape{6} == Shape{6, 1});
  CHECK_FALSE(Shape{} == Shape{1});
  CHECK_FALSE(Shape{0} == Shape{});
}

TEST_CASE("a negative extent is refused") {
  CHECK_THROWS_MATCHES((Shape{2, -1}), std::invalid_argument,
                       Message("[shape] extents must be >= 0, got -1"));
}

TEST_CASE("a rank above five is refused") {
  CHECK(Shape{1, 1, 1, 1, 2}.rank() == 5);
  CHECK_THROWS_MATCHES((Shape{1, 1, 1, 1, 1, 1}), std::invalid_argument,
                       Message("[shape] rank must be at most 5, got 6"));
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
