#include "engine/testing/finite_differences.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <sstream>

#include "engine/ambient/ambient.h"
#include "engine/autograd/backward.h"
#include "engine/testing/values.h"

namespace rematch::testing {
namespace {

// A power of two near the cube root of the unit roundoff, where truncation and rounding balance;
// inputs are multiples of it, so input +- step is exact.
constexpr double kStep = 0x1p-17;
constexpr double kUnitRoundoff = 0x1p-53;

Tensors cotangents(const Tensors& outputs) {
  Tensors result;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    result.push_back(values_off_zero(outputs[i].shape(), 1000 + i));
  }
  return result;
}

double inner_product(const Tensors& outputs, const Tensors& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::int64_t j = 0; j < outputs[i].elements(); ++j) {
      sum += outputs[i].at(j) * weights[i].at(j);
    }
  }
  return sum;
}

double sum_of_magnitudes(const Tensors& weights) {
  double sum = 0;
  for (const Tensor& w : weights) {
    for (std::int64_t j = 0; j < w.elements(); ++j) sum += std::abs(w.at(j));
  }
  return sum;
}

/// d <outputs, weights> / d inputs[which], element by element.
std::vector<double> differences(const Operation& operation, const Tensors& inputs,
                                std::size_t which, const Tensors& weights) {
  const GradMode off(false);
  std::vector<double> result;
  for (std::int64_t j = 0; j < inputs[which].elements(); ++j) {
    double values[2];
    for (const int side : {0, 1}) {
      Tensors moved = inputs;
      moved[which] = inputs[which].clone();
      moved[which].data<double>()[j] += side == 0 ? kStep : -kStep;
      values[side] = inner_product(operation(moved), weights);
    }
    result.push_back((values[0] - values[1]) / (2 * kStep));
  }
  return result;
}

/// Taylor leaves third_derivative * h^2 / 6 per output, weighted by the cotangents C. Each of the
/// two values has a rounding error of at most (roundings + outputs) * u * magnitude * C, outputs
/// being the additions of the inner product; their difference is divided by 2 h. The vjp itself
/// sums at most as many products of the same magnitudes, which is a 2 h-th of that: doubling the
/// rounding term covers it, and the second-order terms.
double tolerance(const Accuracy& accuracy, const Tensors& weights) {
  double outputs = 0;
  for (const Tensor& w : weights) outputs += static_cast<double>(w.elements());
  const double c = sum_of_magnitudes(weights);
  return accuracy.third_derivative * kStep * kStep / 6 * c +
         2 * (accuracy.roundings + outputs) * kUnitRoundoff * accuracy.magnitude * c / kStep;
}

std::string place(std::uint32_t choice, std::size_t input) {
  return "inputs that require grad " + std::to_string(choice) + " (bits), gradient of input " +
         std::to_string(input);
}

}  // namespace

std::vector<std::string> gradient_mismatches(const Operation& operation, const Tensors& inputs,
                                             const Accuracy& accuracy) {
  Tensors weights;
  {
    const GradMode off(false);
    weights = cotangents(operation(inputs));
  }
  const double bound = tolerance(accuracy, weights);
  std::vector<std::vector<double>> expected;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    expected.push_back(differences(operation, inputs, i, weights));
  }
  std::vector<std::string> found;
  const std::uint32_t choices = std::uint32_t{1} << inputs.size();
  for (std::uint32_t choice = 1; choice < choices; ++choice) {
    Tensors leaves;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      leaves.push_back(inputs[i].clone().set_requires_grad((choice >> i & 1U) != 0));
    }
    const Tensors outputs = operation(leaves);
    // An operation that cuts the gradient off leaves nothing to walk.
    if (std::none_of(outputs.begin(), outputs.end(),
                     [](const Tensor& y) { return y.requires_grad(); })) {
      found.push_back(place(choice, 0) + ": no output requires grad");
      continue;
    }
    backward(outputs, weights);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& gradient = leaves[i].grad();
      if (gradient.defined() != leaves[i].requires_grad()) {
        found.push_back(place(choice, i) + (gradient.defined() ? ": unwanted" : ": absent"));
        continue;
      }
      if (!gradient.defined()) continue;
      for (std::size_t j = 0; j < expected[i].size(); ++j) {
        const double got = gradient.at(static_cast<std::int64_t>(j));
        // Not `> bound`, which a NaN would pass.
        if (std::abs(got - expected[i][j]) <= bound) continue;
        std::ostringstream line;
        line.precision(17);
        line << place(choice, i) << ", element " << j << ": " << expected[i][j] << " +- " << bound
             << " expected, got " << got;
        found.push_back(line.str());
      }
    }
  }
  return found;
}

void check_gradients(const Operation& operation, const Tensors& inputs, const Accuracy& accuracy) {
  for (const std::string& mismatch : gradient_mismatches(operation, inputs, accuracy)) {
    FAIL_CHECK(mismatch);
  }
  SUCCEED();
}

void check_gradient_of_both_operands(const Operation& operation, const Tensor& operand,
                                     const Accuracy& accuracy) {
  check_gradients(
      [&](const Tensors& in) {
        return operation({in[0], in[0]});
      },
      {operand}, accuracy);
}

}  // namespace rematch::testing
