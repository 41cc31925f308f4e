#pragma once

#include <cstdint>
#include <string>

#include "engine/nn/layers.h"
#include "engine/nn/module.h"

namespace rematch::scenarios::frozen {

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
  /// Blocks, from the first, whose parameters do not require grad.
  int frozen_by_hand = 0;
};

/// The network of the thread, for pictures of 32 x 32 in three channels and ten classes: two blocks
/// of two convolutions (32, 64; 64, 64 channels) with max pooling and dropout, and a head of two
/// linear layers (512, 10) with dropout between.
class Network {
 public:
  /// Parameters of each block: weight and bias of two convolutions.
  static constexpr std::size_t kBlockParameters = 4;

  Network(const Wiring& wiring, std::uint64_t seed);
  Tensor forward(const Tensor& pictures);
  void set_training(bool on);

  /// Those of the first block, of the second, of the head.
  const Tensors& parameters() const { return parameters_; }
  /// How often block 0 or 1 has run, recomputations included.
  int executions(int block) const { return executions_[block]; }

 private:
  Tensor run_block(int block, bool checkpointed, const Tensor& x);

  Wiring wiring_;
  nn::Sequential blocks_[2];
  nn::RandomLayer dropout_{nn::RandomKind::dropout, 0.25};
  nn::Sequential head_;
  Tensors parameters_;
  int executions_[2] = {};
};

}  // namespace rematch::scenarios::frozen
