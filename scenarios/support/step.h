#pragma once

// Parts of the stories' own models and training steps.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include <vector>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/nn/layers.h"

namespace rematch::scenarios {

using ModulePtr = std::shared_ptr<nn::Module>;

/// With a bias, in float32.
ModulePtr linear_layer(std::int64_t in, std::int64_t out, Generator& generator);
ModulePtr activation(nn::ActivationKind kind);

/// A parameter in float32 with uniform values in [-bound, bound].
Tensor uniform_parameter(const Shape& shape, double bound, Generator& generator);
/// Standard normal values in float32, under Tag::inputs.
Tensor normal_input(const Shape& shape, Generator& generator);

/// `functions`, each of which adds its place to `order` whenever it begins to run. `order` must
/// outlive them.
std::vector<Function> counting(std::span<const Function> functions, std::vector<int>& order);

/// Functions [begin, end) of a model.
struct Region {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Runs functions one after the other, those of each region as one checkpoint. Regions are ordered
/// and disjoint.
Tensor run_regions(std::span<const Function> functions, std::span<const Region> regions,
                   const Tensor& x, const CheckpointOptions& options = {});

/// The bits of all tensors, one after the other; undefined ones have none.
std::vector<std::byte> bits_of(std::span<const Tensor> tensors);
/// Their gradients.
Tensors gradients_of(std::span<const Tensor> leaves);

/// What an error of this kind says that ends `work`; "" where none does.
template <class Error, class Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Results of a step, to be compared to the bit.
struct Values {
  double loss = 0;
  std::vector<std::byte> gradients;
  friend bool operator==(const Values&, const Values&) = default;
};

}  // namespace rematch::scenarios
