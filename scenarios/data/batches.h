#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/random/generator.h"
#include "engine/tensor/tensor.h"
#include "scenarios/data/dataset.h"

namespace rematch::scenarios {

struct Batch {
  Tensor pictures;  ///< float32 [n, 3, 32, 32], in [-1, 1]
  Tensor labels;    ///< int32 [n]
};

/// The pictures with these numbers, ready for a network made for CIFAR-10: grey ones three times,
/// smaller ones enlarged to 32 x 32 by linear interpolation between pixel centres (the border is
/// continued outwards), bytes b as b / 127.5 - 1. The same bits on every machine. Throws
/// std::invalid_argument for a number that no picture has, or pictures that are neither of 1 nor of
/// 3 channels, not square, or larger than 32 x 32.
Batch make_batch(const Pictures& pictures, std::span<const std::int64_t> numbers);

/// 0 .. count - 1 in an order drawn from `generator` (Fisher and Yates).
std::vector<std::int64_t> shuffled(std::int64_t count, Generator& generator);

}  // namespace rematch::scenarios
