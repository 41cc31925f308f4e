#pragma once

#include <vector>

#include "engine/cpu/chain.h"

namespace rematch::cpu::testing {

/// Vector widths of this CPU.
inline std::vector<Vectors> all_vectors() {
  if (best_vectors() == Vectors::avx512) return {Vectors::avx2, Vectors::avx512};
  return {Vectors::avx2};
}

}  // namespace rematch::cpu::testing
