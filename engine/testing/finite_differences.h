#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/tensor/tensor.h"

namespace rematch::testing {

using Operation = std::function<Tensors(const Tensors&)>;

/// The accuracy of a central difference of an operation.
struct Accuracy {
  /// Largest |third derivative| of one output along one input element.
  double third_derivative = 0;
  /// Largest sum of magnitudes of the terms that make up one output.
  double magnitude = 1;
  /// Roundings on the way to one output.
  double roundings = 1;
};

/// Compares the gradients of `operation` at `inputs`, all float64, with central differences, once
/// for every choice of which inputs require grad: those get the gradient, the others none. Returns
/// a line for each place where they disagree. Inputs must be multiples of 2^-17 below 2^30, and the
/// operation smooth within 2^-17 of them.
std::vector<std::string> gradient_mismatches(const Operation& operation, const Tensors& inputs,
                                             const Accuracy& accuracy);

/// Checks, with Catch2's CHECK, that there are no gradient_mismatches().
void check_gradients(const Operation& operation, const Tensors& inputs, const Accuracy& accuracy);

/// The same for the one tensor given as both operands of `operation`.
void check_gradient_of_both_operands(const Operation& operation, const Tensor& operand,
                                     const Accuracy& accuracy);

}  // namespace rematch::testing
