// Ops whose kernels work in blocks agree with loops that know no block, at sizes around each block:
// outputs, and the gradients of all operands.
#include "engine/testing/plain_loops.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <complex>

#include "engine/testing/kernel_table.h"

namespace rematch {
namespace {

using namespace testing;

template <class T>
Plains<T> plains_of(const Tensors& tensors) {
  Plains<T> plains;
  for (const Tensor& t : tensors) {
    Plain<T> plain(Extents(t.shape().dims().begin(), t.shape().dims().end()));
    const std::vector<double> values = t.to_vector();
    std::copy(values.begin(), values.end(), plain.values.begin());
    plains.push_back(std::move(plain));
  }
  return plains;
}

/// The derivative of sum(weights * loop(in)) where operand `which` moves along `direction`: the
/// imaginary part that a step of 2^-200 into the imaginary plane leaves, in which nothing cancels.
double derivative_along(const Kernel& k, const Tensors& in, std::size_t which,
                        const std::vector<double>& direction, const std::vector<double>& weights) {
  constexpr double kStep = 0x1p-200;
  Plains<Complex> moved = plains_of<Complex>(in);
  for (std::size_t i = 0; i < direction.size(); ++i) {
    moved[which].values[i].imag(kStep * direction[i]);
  }
  const Plain<Complex> y = k.derivative(moved);
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) sum += weights[i] * y.values[i].imag() / kStep;
  return sum;
}

void check_kernel(const Kernel& k, const Operands& operands) {
  const Tensors in = leaves_of(operands, DType::float64);
  const Tensor y = k.op(in);
  differentiate(y);
  check_close(y.to_vector(), k.loop(plains_of<double>(in)).values, kBound);

  const std::vector<double> weights = values_off_zero(y.shape(), 9).to_vector();
  for (std::size_t i = 0; i < in.size(); ++i) {
    INFO("gradient of operand " << i);
    const std::vector<double> gradient = in[i].grad().to_vector();
    const std::vector<double> direction = values_off_zero(in[i].shape(), i).to_vector();
    double got = 0;
    double terms = 1;
    for (std::size_t j = 0; j < gradient.size(); ++j) {
      got += gradient[j] * direction[j];
      terms += std::fabs(gradient[j] * direction[j]);
    }
    const double expected = derivative_along(k, in, i, direction, weights);
    CHECK(std::fabs(got - expected) <= kBound * terms);
  }

  const Tensors in32 = leaves_of(operands, DType::float32);
  const Tensor y32 = k.op(in32);
  differentiate(y32);
  const auto check_float32 = [](const Tensor& got, const Tensor& expected) {
    const std::vector<double> values = expected.to_vector();
    check_close(got.to_vector(), values, kFloat32Bound * std::max(1.0, largest(values)));
  };
  check_float32(y32, y);
  for (std::size_t i = 0; i < in.size(); ++i) {
    INFO("gradient of operand " << i << " in float32");
    check_float32(in32[i].grad(), in[i].grad());
  }
}

}  // namespace

TEST_CASE("a kernel that works in blocks agrees with a loop that knows none, around each block") {
  for (const Kernel& k : kernels()) {
    for (const Operands& operands : k.cases) {
      INFO(described(k, operands) << ", seed " << Catch::getSeed());
      check_kernel(k, operands);
    }
  }
}

}  // namespace rematch
