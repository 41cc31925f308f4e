#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "engine/nn/optimizer.h"
#include "engine/random/generator.h"
#include "scenarios/stories/frozen_first_block/network.h"

namespace rematch::scenarios::frozen {

/// Observations of one training step.
struct Step {
  double loss = 0;
  /// Parameters of blocks 0 and 1 that had a gradient, 0 to Network::kBlockParameters.
  int gradients[2] = {};
  /// Runs of each block, the recomputation included.
  int executions[2] = {};
  /// frozen_checkpoint_warnings() of this step.
  std::int64_t warnings = 0;
  /// Bytes that the graph held after the forward.
  std::int64_t saved_bytes = 0;
};

struct Score {
  double loss = 0;      ///< Mean cross-entropy.
  double accuracy = 0;  ///< Share of pictures whose class got the highest value.
};

/// One network in training: Adam with a step of 0.001, cross-entropy, dropout from a random stream
/// of its own. Two trainings with equal wirings and equal batches have equal bits. Each has its own
/// ledger and random state, so that different threads may each train one; a training may move from
/// thread to thread between calls.
class Training {
 public:
  Training(Wiring wiring, std::uint64_t seed);
  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  /// Forward, backward and update for the pictures with these numbers.
  Step step(std::span<const std::int64_t> numbers);
  /// The score of `count` pictures from number `begin`, in evaluation mode. `scored` is told after
  /// each batch how many it had; when it returns false, the score is given up.
  std::optional<Score> score(std::int64_t begin, std::int64_t count,
                             const std::function<bool(std::int64_t)>& scored);

  const Wiring& wiring() const { return wiring_; }
  const Tensors& parameters() const { return network_->parameters(); }

 private:
  Wiring wiring_;
  std::shared_ptr<Ledger> ledger_;
  Streams streams_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<nn::Optimizer> optimizer_;
};

/// Elements whose bits differ between two lists of tensors of equal shapes.
std::int64_t different_elements(std::span<const Tensor> a, std::span<const Tensor> b);

/// A hash of the bits of all tensors.
std::uint64_t hash_of(std::span<const Tensor> tensors);

}  // namespace rematch::scenarios::frozen
