#include "engine/cuda/kernels/channel_bias.h"

#include "engine/cuda/kernels/channels.h"
#include "engine/kernels/declare.h"

namespace rematch::cuda {

namespace {

template <typename T>
struct AddBias {
  const T* b;
  __device__ void operator()(std::int64_t channel, T& y) const { y += b[channel]; }
};

template <typename T>
struct StoreSum {
  T* gb;
  __device__ void operator()(std::int64_t channel, double total) const {
    gb[channel] = static_cast<T>(total);
  }
};

}  // namespace

template <typename T>
void add_bias(std::int64_t n, std::int64_t c, std::int64_t s, const T* b, T* y) {
  channel_map<kVector<T>>("add_bias", {n, c, s}, AddBias<T>{b}, InOut<T>{y});
}

template <typename T>
void sum_channels(std::int64_t n, std::int64_t c, std::int64_t s, const T* gy, T* gb) {
  const Extents e{n, c, s};
  channel_sums<T, 1>("sum_channels", e, Element<T>{gy}, scratch_doubles(c * e.partials()),
                     StoreSum<T>{gb});
}

REMATCH_INSTANTIATE(add_bias);
REMATCH_INSTANTIATE(sum_channels);

}  // namespace rematch::cuda
