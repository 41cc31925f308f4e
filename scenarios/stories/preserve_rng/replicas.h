#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/random/generator.h"

namespace rematch::scenarios::preserve_rng_story {

/// Whether a replica checkpoints the part with dropout, and how.
struct Mode {
  bool checkpointed = false;
  bool preserve_rng = true;
  bool reentrant = false;
};

/// Data-parallel training: replicas with equal weights and a share of the data each, every one on a
/// thread of its own. After each backward the gradients are averaged, and every replica makes the
/// same step of SGD.
struct Setup {
  /// One for each replica.
  std::vector<Mode> modes;
  /// Replica i draws from seed + i instead of the same seed.
  bool own_seeds = true;
  int steps = 1;
  double dropout = 0.5;
  double learning_rate = 0.05;
  /// Record the loss over all data, dropout off, after each step.
  bool evaluate = false;
};

/// Observations of one replica.
struct Replica {
  /// In the order in which they were drawn, over all steps, by forwards and by recomputations.
  std::vector<std::vector<std::byte>> masks;
  std::vector<std::vector<std::byte>> recomputed_masks;
  /// Bytes of the averaged gradients of the first step, and of the weights at the end.
  std::vector<std::byte> gradients;
  std::vector<std::byte> weights;
  Generator random;
};

struct Training {
  std::vector<Replica> replicas;
  std::vector<double> losses;
};

/// Throws what the engine throws, in whichever replica.
Training train(const Setup& setup);

}  // namespace rematch::scenarios::preserve_rng_story
