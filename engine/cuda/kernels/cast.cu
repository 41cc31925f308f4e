#include "engine/kernels/cast.h"

#include "engine/cuda/runtime/deferred.h"
#include "engine/cuda/runtime/launch.h"

namespace rematch::cuda {

namespace {

using math::BFloat16;

struct Convert {
  __device__ void operator()(std::int64_t /*i*/, BFloat16 x, float& out) const {
    out = static_cast<float>(x);
  }
  __device__ void operator()(std::int64_t /*i*/, float x, BFloat16& out) const {
    out = BFloat16(x);
  }
};

/// Elements a step: as many as float32 moves in 128 bits.
constexpr int kWidth = kVector<float>;

/// So many gain by company.
constexpr std::int64_t kFewElements = Deferred::kLargest / std::int64_t{sizeof(float)};

}  // namespace

void upcast(std::int64_t n, const BFloat16* x, float* out) {
  if (n <= kFewElements) return deferred().upcast(out, x, n);
  visit<kWidth>("upcast", n, Convert{}, In<BFloat16>{x}, Out<float>{out});
}

void downcast(std::int64_t n, const float* x, BFloat16* out) {
  if (n <= kFewElements) return deferred().downcast(out, x, n);
  visit<kWidth>("downcast", n, Convert{}, In<float>{x}, Out<BFloat16>{out});
}

}  // namespace rematch::cuda
