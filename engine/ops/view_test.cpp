#include "engine/ops/view.h"

#include <catch2/catch_test_macros.hpp>

#include "engine/tensor/tensor.h"

namespace rematch {

namespace {

Tensor of_zeros(const Shape& shape) { return Tensor::zeros(shape, DType::float32); }

}  // namespace

TEST_CASE("flatten keeps the batch and multiplies the other extents, zero or not") {
  CHECK(flatten(of_zeros({2, 3, 4})).shape() == Shape{2, 12});
  CHECK(flatten(of_zeros({0, 3, 4})).shape() == Shape{0, 12});
  CHECK(flatten(of_zeros({2, 0, 4})).shape() == Shape{2, 0});
  CHECK(flatten(of_zeros({5})).shape() == Shape{5, 1});
}

}  // namespace rematch
