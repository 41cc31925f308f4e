#pragma once

#include <cstdint>

#include "engine/random/generator.h"
#include "engine/tensor/tensor.h"
#include "properties/case/case.h"

namespace rematch {

// Data of a run is drawn from streams of their own, apart from the ambient ones, so that plain and
// checkpointed runs see the same parameters, inputs and targets whatever they do to the ambient
// state.
inline constexpr std::uint64_t kParameterStream = 1ull << 32;
inline constexpr std::uint64_t kInputStream = kParameterStream + 1;
inline constexpr std::uint64_t kTargetStream = kParameterStream + 2;

/// Adds distance * direction(seed, array) to data in float64; nothing if the distance is 0.
struct Displacement {
  std::uint64_t seed = 0;
  std::uint64_t array = 0;
  double distance = 0;
};

/// Uniform in [low, high], or integers in [-3, 3], displaced.
void fill_data(Tensor& t, DataKind kind, double low, double high, Generator& generator,
               const Displacement& by = {});

/// `t` in another dtype; `t` itself if it has that already, or holds integers.
Tensor converted(const Tensor& t, DType dtype);

/// Standard normal, or integers in [-3, 3], displaced, under Tag::inputs; or tokens, as int32.
Tensor make_input(const Case& c, Generator& generator, const Displacement& by = {});

/// A target for the loss on an output of shape [rows, cols].
Tensor make_target(const Case& c, const Shape& output, Generator& generator);

}  // namespace rematch
