#pragma once

#include <cstdint>
#include <span>

#include "engine/tensor/tensor.h"

namespace rematch::scenarios::frozen {

struct Batch {
  Tensor pictures;  ///< float32 [n, 3, 32, 32]
  Tensor labels;    ///< int32 [n], 0 to 9
};

/// The pictures with these numbers, each drawn from its number alone, so that there is nothing to
/// download: stripes whose direction and width are the class, with weaker ones of a class drawn at
/// random and noise over them. The same bits on every machine.
Batch make_batch(std::span<const std::int64_t> numbers);

}  // namespace rematch::scenarios::frozen
