#include "engine/cpu/chain.h"

#include <stdexcept>
#include <string>

namespace rematch::cpu {
namespace {

thread_local Vectors chosen = best_vectors();

}  // namespace

std::string_view to_string(Vectors vectors) { return vectors == Vectors::avx2 ? "avx2" : "avx512"; }

Vectors best_vectors() {
  static const Vectors best =
      __builtin_cpu_supports("avx512f") != 0 ? Vectors::avx512 : Vectors::avx2;
  return best;
}

Vectors vectors() { return chosen; }

void set_vectors(Vectors vectors) {
  if (vectors > best_vectors()) {
    throw std::invalid_argument("[vectors] this CPU has no " + std::string(to_string(vectors)));
  }
  chosen = vectors;
}

template <>
const ChainKernel<float>& chain_kernel<float>(Vectors vectors) {
  return vectors == Vectors::avx512 ? detail::kChainAvx512Float : detail::kChainAvx2Float;
}

template <>
const ChainKernel<double>& chain_kernel<double>(Vectors vectors) {
  return vectors == Vectors::avx512 ? detail::kChainAvx512Double : detail::kChainAvx2Double;
}

}  // namespace rematch::cpu
