#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/nn/layers.h"
#include "engine/nn/optimizer.h"
#include "engine/random/generator.h"

namespace rematch::scenarios::frozen_first_block_story {

inline constexpr std::uint64_t kSeed = 1;

/// How the two convolutional blocks of the network are run. The layers, their order and their first
/// weights are the same for every wiring.
struct Wiring {
  std::string name;
  bool first_checkpointed = false;
  bool second_checkpointed = false;
  bool reentrant = false;
  /// The dropout behind a block belongs to its checkpoint.
  bool dropout_inside = false;
  bool input_requires_grad = false;
  bool preserve_rng = true;
  bool frozen_by_hand = false;
};

/// Observations of one training step.
struct Step {
  double loss = 0;
  /// Parameters of blocks 0 and 1 that had a gradient, 0 to 4.
  int gradients[2] = {};
  /// Runs of each block, the recomputation included.
  int executions[2] = {};
  /// frozen_checkpoint_warnings() of this step.
  std::int64_t warnings = 0;
  /// Bytes that the graph held after the forward.
  std::int64_t saved_bytes = 0;
};

/// The network of the thread in training, for pictures of 32 x 32 in three channels and ten
/// classes: two blocks of two convolutions (32, 64; 64, 64 channels) with max pooling and dropout,
/// and a head of two linear layers (512, 10) with dropout between; Adam with a step of 0.001.
/// Trainings with equal wirings and batches have equal bits. Each has its own ledger and random
/// state, so that different threads may each train one.
class Training {
 public:
  explicit Training(Wiring wiring);

  /// Forward, backward and update for the pictures with these numbers.
  Step step(std::span<const std::int64_t> numbers);

  const Wiring& wiring() const { return wiring_; }
  /// Those of both blocks, then of the head.
  const Tensors& parameters() const { return parameters_; }
  std::span<const Tensor> block_parameters() const { return std::span(parameters_).first(8); }

 private:
  Tensor forward(const Tensor& pictures);

  Wiring wiring_;
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  Streams streams_{kSeed};
  /// Both blocks and the head.
  std::vector<nn::Sequential> parts_;
  nn::RandomLayer dropout_{nn::RandomKind::dropout, 0.25};
  Tensors parameters_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  int executions_[2] = {};
};

}  // namespace rematch::scenarios::frozen_first_block_story
