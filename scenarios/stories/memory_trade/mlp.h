#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/nn/layers.h"
#include "scenarios/support/counting.h"

namespace rematch::scenarios::trade {

/// `hidden` times Linear and relu, then Linear to ten classes. The tutorial's MyModel by default:
/// layer1, relu, layer2, relu, layer3.
struct Shapes {
  std::int64_t batch = 32;
  std::int64_t width = 1024;
  int hidden = 2;
};

class Mlp {
 public:
  static constexpr std::int64_t kClasses = 10;

  explicit Mlp(const Shapes& shapes);
  /// Each layer and each relu.
  std::vector<Function> functions() const;
  Tensors parameters() const;
  std::int64_t parameter_bytes() const;

 private:
  std::vector<std::shared_ptr<nn::Linear>> layers_;
};

/// Functions [begin, end) of the model as one checkpoint.
struct Region {
  std::size_t begin = 0;
  std::size_t end = 0;
};
struct Plan {
  std::string name;
  std::vector<Region> regions;
};

/// For MyModel: nothing first, then layer2 and layer3 each, as the tutorial means it, and others.
const std::vector<Plan>& plans();

/// `blocks` regions of equal size over all hidden layers; it must divide their number.
Plan equal_blocks(int hidden, int blocks);

/// Runs the functions by `plan`.
Tensor forward(const std::vector<Function>& functions, const Plan& plan, const Tensor& x);

/// What one training step did: forward, mean square error, backward, SGD.
struct MlpStep {
  /// Beyond parameters, input and target, with the output held.
  std::int64_t after_forward = 0;
  /// Of everything, parameters and gradients included.
  std::int64_t peak = 0;
  RunCount count;
  /// Of the loss and of all gradients.
  std::vector<std::byte> bits;
  /// Of forward, backward and SGD.
  double milliseconds = 0;
};

/// `limit`: bytes that may be live; throws OutOfMemory when they do not do.
MlpStep train_step(const Shapes& shapes, const Plan& plan,
                   std::optional<std::int64_t> limit = std::nullopt);

/// Of the functions that `plan` runs again: two for each multiply-add of a product, one for each
/// element of a relu.
std::int64_t recomputed_operations(const Shapes& shapes, const Plan& plan);

}  // namespace rematch::scenarios::trade
