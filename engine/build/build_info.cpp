#include "engine/build/build_info.h"

#include <stdexcept>

namespace rematch {

std::string_view build_kind() {
#if defined(REMATCH_NATIVE)
  return "native";
#else
  return "portable (x86-64-v3)";
#endif
}

void require_cpu() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    throw std::runtime_error(
        "[engine] this build needs an x86-64-v3 CPU (AVX2 and FMA), which this machine is not");
  }
}

}  // namespace rematch
