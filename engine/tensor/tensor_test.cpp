#include "engine/tensor/tensor.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <limits>
#include <stdexcept>

#include "engine/autograd/saved_tensor.h"
#include "engine/ops/activation.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::Message;
using namespace testing;

TEST_CASE_METHOD(LedgerScope, "a tensor takes elements times element size, and gives them back") {
  {
    const Tensor a = Tensor::empty({3, 5}, DType::float32);
    const Tensor b = Tensor::empty({3, 5}, DType::float64);
    const Tensor c = Tensor::empty({7}, DType::uint8, Tag::state);
    const Tensor d = Tensor::empty({2}, DType::int32, Tag::inputs);
    CHECK(a.bytes() == 60);
    CHECK(ledger().live(Tag::temporaries) == 180);
    CHECK(ledger().live(Tag::state) == 7);
    CHECK(ledger().live(Tag::inputs) == 8);
    const Tensor e = Tensor::empty({9}, DType::bfloat16, Tag::parameters);
    CHECK(e.bytes() == 18);
    CHECK(ledger().live(Tag::parameters) == 18);
  }
  CHECK(ledger().live() == 0);
}

TEST_CASE_METHOD(LedgerScope, "a count of values that does not fill the shape is refused") {
  CHECK_THROWS_MATCHES(tensor({1, 2, 3}, {2, 2}), std::invalid_argument,
                       Message("[tensor] shape [2, 2] needs 4 values, got 3"));
}

TEST_CASE_METHOD(LedgerScope, "a tensor cannot be read as another dtype") {
  const Tensor a = tensor({1}, {1}, DType::float32);
  CHECK_THROWS_MATCHES(a.data<double>(), std::invalid_argument,
                       Message("[tensor] data<float64> of a tensor of float32"));
  CHECK_THROWS_MATCHES(tensor({1}, {1}, DType::bfloat16).data<float>(), std::invalid_argument,
                       Message("[tensor] data<float32> of a tensor of bfloat16"));
}

TEST_CASE_METHOD(LedgerScope, "item() needs exactly one element") {
  CHECK(tensor({4}, {1, 1}).item() == 4);
  CHECK(tensor({4}, {}).item() == 4);
  CHECK_THROWS_MATCHES(tensor({1, 2}, {2}).item(), std::invalid_argument,
                       Message("[tensor] item() needs one element, got shape [2]"));
}

TEST_CASE_METHOD(LedgerScope, "an undefined tensor has no properties to ask for") {
  const Tensor none;
  CHECK_FALSE(none.defined());
  CHECK_THROWS_AS(none.shape(), std::invalid_argument);
  CHECK_THROWS_AS(none.dtype(), std::invalid_argument);
  CHECK_THROWS_AS(none.grad(), std::invalid_argument);
  CHECK_THROWS_AS(none.requires_grad(), std::invalid_argument);
  CHECK_THROWS_AS(none.detach(), std::invalid_argument);
}

TEST_CASE_METHOD(LedgerScope, "requires_grad cannot be set on the result of an op") {
  Tensor y = relu(variable({1}, {1}));
  CHECK_THROWS_AS(y.set_requires_grad(false), std::invalid_argument);
  CHECK_NOTHROW(y.detach().set_requires_grad(true));
}

TEST_CASE_METHOD(LedgerScope, "a gradient must fit its tensor and counts as a gradient") {
  Tensor x = variable({1, 2}, {2});
  CHECK_THROWS_MATCHES(x.set_grad(tensor({1}, {1})), std::invalid_argument,
                       Message("[tensor] gradient of shape [2] float64 expected, got [1] float64"));
  CHECK_THROWS_AS(x.set_grad(tensor({1, 2}, {2}, DType::float32)), std::invalid_argument);
  x.set_grad(tensor({3, 4}, {2}));
  CHECK(ledger().live(Tag::gradients) == 16);
  x.set_grad({});
  CHECK_FALSE(x.grad().defined());
  CHECK(ledger().live(Tag::gradients) == 0);
}

TEST_CASE_METHOD(LedgerScope, "a gradient hook needs a tensor that requires grad") {
  CHECK_THROWS_AS(tensor({1}, {1}).register_hook([](const Tensor& g) { return g; }),
                  std::invalid_argument);
}

TEST_CASE_METHOD(LedgerScope, "a temporary counts as saved from the first save to the last drop") {
  const Tensor x = tensor({1, 2}, {2});
  SavedTensor first;
  SavedTensor second;
  first.save(x);
  CHECK(ledger().live(Tag::saved) == 16);
  second.save(x);
  CHECK(ledger().live(Tag::saved) == 16);
  first.reset();
  CHECK(ledger().live(Tag::saved) == 16);
  second.reset();
  CHECK(ledger().live(Tag::saved) == 0);
  CHECK(ledger().live(Tag::temporaries) == 16);
}

TEST_CASE_METHOD(LedgerScope, "what is not a temporary keeps its tag when saved") {
  const Tensor x = Tensor::ones({2}, DType::float64, Tag::parameters);
  SavedTensor saved;
  saved.save(x);
  CHECK(ledger().live(Tag::parameters) == 16);
  CHECK(ledger().live(Tag::saved) == 0);
}

TEST_CASE_METHOD(LedgerScope, "a saved temporary that becomes a gradient stays one") {
  Tensor x = variable({1, 2}, {2});
  const Tensor g = tensor({3, 4}, {2});
  SavedTensor saved;
  saved.save(g);
  x.set_grad(g);
  CHECK(ledger().live(Tag::gradients) == 16);
  CHECK(ledger().live(Tag::saved) == 0);
  saved.reset();
  CHECK(ledger().live(Tag::gradients) == 16);
}

TEST_CASE("the comparison of bits fails where values compare equal but bits differ") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(same_bits(tensor({nan}, {1}), tensor({nan}, {1})));
  CHECK_FALSE(same_bits(tensor({nan}, {1}), tensor({-nan}, {1})));
  CHECK_FALSE(same_bits(tensor({0.0}, {1}), tensor({-0.0}, {1})));
  CHECK_FALSE(same_bits(tensor({1}, {1}), tensor({1}, {1}, DType::float32)));
  CHECK_FALSE(same_bits(tensor({1}, {1}), tensor({1}, {})));
  CHECK_FALSE(same_bits(tensor({1}, {1}), Tensor()));
  CHECK(same_bits(Tensor(), Tensor()));
}

TEST_CASE("one element that is 0 is found wherever it stands") {
  CHECK(testing::all_nonzero(tensor({1, -2, 0x1p-1074}, {3})));
  CHECK(testing::all_nonzero(tensor({}, {0})));
  CHECK_FALSE(testing::all_nonzero(tensor({0, 2, 3}, {3})));
  CHECK_FALSE(testing::all_nonzero(tensor({1, 2, -0.0}, {3})));
}

TEST_CASE_METHOD(LedgerScope, "only floating tensors can require grad") {
  CHECK(variable({1}, {1}, DType::float32).requires_grad());
  CHECK(variable({1}, {1}, DType::bfloat16).requires_grad());
  Tensor indices = tensor({1}, {1}, DType::int32);
  CHECK_THROWS_MATCHES(indices.set_requires_grad(true), std::invalid_argument,
                       Message("[tensor] only float32, float64 and bfloat16 can require grad, "
                               "got int32"));
  CHECK_NOTHROW(indices.set_requires_grad(false));
}

}  // namespace
}  // namespace rematch
