#include "engine/kernels/cast.h"

namespace rematch::cpu {

void upcast(std::int64_t n, const math::BFloat16* x, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(x[i]);
}

void downcast(std::int64_t n, const float* x, math::BFloat16* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = math::BFloat16(x[i]);
}

}  // namespace rematch::cpu
