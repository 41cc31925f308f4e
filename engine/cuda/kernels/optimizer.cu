#include "engine/kernels/optimizer.h"

#include <algorithm>

#include "engine/cuda/runtime/launch.h"
#include "engine/math/update.h"

namespace rematch::cuda {

namespace {

template <typename T>
struct Sgd {
  T lr;
  __device__ void operator()(std::int64_t /*i*/, T g, T& w) const { w = math::sgd(w, g, lr); }
};

template <typename T>
struct SgdFirst {
  T lr;
  __device__ void operator()(std::int64_t /*i*/, T g, T& buf, T& w) const {
    buf = g;
    w = math::sgd(w, g, lr);
  }
};

template <typename T>
struct SgdMomentum {
  T lr;
  T momentum;
  __device__ void operator()(std::int64_t /*i*/, T g, T& buf, T& w) const {
    buf = math::sgd_momentum(buf, g, momentum);
    w = math::sgd(w, buf, lr);
  }
};

template <typename T>
struct Adam {
  math::AdamStep<T> step;
  __device__ void operator()(std::int64_t /*i*/, T g, T& m, T& v, T& w) const {
    step.apply(g, m, v, w);
  }
};

/// Items of one launch: thread blocks ends[i - 1] .. ends[i] - 1 have item i in their hands.
constexpr std::size_t kMostItems = 64;
template <typename Item>
struct Items {
  unsigned count;
  unsigned ends[kMostItems];
  Item at[kMostItems];
};
// Arguments of a launch are limited to 4 KiB.
static_assert(sizeof(Items<math::AdamItem<double>>) <= 4000);
static_assert(sizeof(Items<math::SgdItem<double>>) <= 4000);

struct Place {
  unsigned item;
  Share share;
};
template <typename Item>
__device__ Place place_of_block(const Items<Item>& items) {
  unsigned i = 0;
  while (items.ends[i] <= blockIdx.x) ++i;
  const unsigned first = i == 0 ? 0 : items.ends[i - 1];
  return {i, {blockIdx.x - first, items.ends[i] - first}};
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    sgd_kernel(Items<math::SgdItem<T>> items, T lr, T momentum) {
  const auto [i, share] = place_of_block(items);
  const math::SgdItem<T> p = items.at[i];
  if (p.buf == nullptr) {
    visit_share<kWidth>(p.n, share, Sgd<T>{lr}, In<T>{p.g}, InOut<T>{p.w});
  } else if (p.first) {
    visit_share<kWidth>(p.n, share, SgdFirst<T>{lr}, In<T>{p.g}, Out<T>{p.buf}, InOut<T>{p.w});
  } else {
    visit_share<kWidth>(p.n, share, SgdMomentum<T>{lr, momentum}, In<T>{p.g}, InOut<T>{p.buf},
                        InOut<T>{p.w});
  }
}

/// Before the step itself, because several thread blocks read each of the constants.
template <typename T>
__global__ void __launch_bounds__(kMostItems)
    adam_constants_kernel(Items<math::AdamItem<T>> items, double lr, double b1, double b2,
                          double eps, math::AdamStep<T>* steps) {
  const unsigned i = threadIdx.x;
  if (i >= items.count) return;
  const std::int64_t t = ++*items.at[i].t;
  steps[i] = math::AdamStep<T>(lr, b1, b2, eps, t);
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    adam_kernel(Items<math::AdamItem<T>> items, const math::AdamStep<T>* steps) {
  const auto [i, share] = place_of_block(items);
  const math::AdamItem<T> p = items.at[i];
  visit_share<kWidth>(p.n, share, Adam<T>{steps[i]}, In<T>{p.g}, InOut<T>{p.m}, InOut<T>{p.v},
                      InOut<T>{p.w});
}

template <typename T>
bool is_wide(const math::SgdItem<T>& p) {
  return aligned<kVector<T>>(p.g, p.buf, p.w);
}
template <typename T>
bool is_wide(const math::AdamItem<T>& p) {
  return aligned<kVector<T>>(p.g, p.m, p.v, p.w);
}

/// launch(kernel arguments, thread blocks, whether all arrays can be moved in vectors) for each
/// group of items.
template <typename Item, typename Launch>
void for_groups(std::span<const Item> items, const Launch& launch) {
  for (; !items.empty(); items = items.subspan(std::min(items.size(), kMostItems))) {
    const auto group = items.first(std::min(items.size(), kMostItems));
    Items<Item> all{};
    all.count = static_cast<unsigned>(group.size());
    unsigned blocks = 0;
    bool wide = true;
    for (std::size_t i = 0; i < group.size(); ++i) {
      blocks += grid_for(std::max<std::int64_t>(group[i].n, 1), 4 * kThreads);
      all.ends[i] = blocks;
      all.at[i] = group[i];
      wide = wide && is_wide(group[i]);
    }
    launch(all, blocks, wide);
  }
}

}  // namespace

template <typename T>
void sgd_steps(std::span<const math::SgdItem<T>> items, T lr, T momentum) {
  for_groups(items, [&](const auto& all, unsigned blocks, bool wide) {
    if (wide) {
      sgd_kernel<kVector<T>><<<blocks, kThreads, 0, stream()>>>(all, lr, momentum);
    } else {
      sgd_kernel<1><<<blocks, kThreads, 0, stream()>>>(all, lr, momentum);
    }
    check_launch("sgd_steps");
  });
}

template <typename T>
void adam_steps(std::span<const math::AdamItem<T>> items, double lr, double b1, double b2,
                double eps) {
  for_groups(items, [&](const auto& all, unsigned blocks, bool wide) {
    auto* const steps =
        static_cast<math::AdamStep<T>*>(workspace(kMostItems * sizeof(math::AdamStep<T>)));
    adam_constants_kernel<<<1, static_cast<int>(kMostItems), 0, stream()>>>(all, lr, b1, b2, eps,
                                                                            steps);
    check_launch("adam_steps");
    if (wide) {
      adam_kernel<kVector<T>><<<blocks, kThreads, 0, stream()>>>(all, steps);
    } else {
      adam_kernel<1><<<blocks, kThreads, 0, stream()>>>(all, steps);
    }
    check_launch("adam_steps");
  });
}

REMATCH_OPTIMIZER_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
