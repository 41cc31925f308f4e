#include "engine/kernels/moe.h"

#include <algorithm>

#include "engine/cpu/block_sizes.h"
#include "engine/cpu/scratch.h"
#include "engine/cpu/threads.h"

namespace rematch::cpu {

namespace {

using math::MoeShape;

/// Rows, or sums over rows, that are worth a second thread, if one costs so many products.
std::int64_t grain(std::int64_t products) {
  return kGrain / std::max<std::int64_t>(products, 1) + 1;
}

/// Some rows of a backward: `resume` says that earlier ones have begun the sums.
template <typename T>
struct RowsBackward {
  const MoeShape& s;
  std::int64_t rows;
  bool resume;
  const T* gy;
  const T* x;
  const T* probabilities;
  const std::int32_t* chosen;
  T* glogits;

  void of_logits(const T* outputs) const {
    parallel(rows, grain(s.top * s.features), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        math::moe_grad_logits(s, gy + r * s.features, probabilities + r * s.experts,
                              chosen + r * s.top, outputs + r * s.top * s.features,
                              glogits + r * s.experts);
      }
    });
  }
  void of_input(const T* router, const T* experts, T* gx) const {
    parallel(rows, grain(s.top * s.matrix()), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin * s.features; i < end * s.features; ++i) {
        const std::int64_t r = i / s.features;
        gx[i] = math::moe_grad_input(s, i % s.features, gy + r * s.features, router, experts,
                                     probabilities + r * s.experts, chosen + r * s.top,
                                     glogits + r * s.experts);
      }
    });
  }
  void of_router(T* grouter) const {
    parallel(s.experts * s.features, grain(rows), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        grouter[i] = math::moe_grad_router(s, rows, i / s.features, i % s.features, x, glogits,
                                           resume ? grouter[i] : T(0));
      }
    });
  }
  void of_experts(T* gexperts) const {
    parallel(s.experts * s.matrix(), grain(rows), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        gexperts[i] = math::moe_grad_expert(s, rows, i / s.matrix(), i / s.features % s.features,
                                            i % s.features, gy, x, probabilities, chosen,
                                            resume ? gexperts[i] : T(0));
      }
    });
  }
};

}  // namespace

template <typename T>
void moe_forward(const MoeShape& s, const T* x, const T* router, const T* experts, T jitter,
                 T* probabilities, std::int32_t* chosen, T* outputs, T* y) {
  const std::int64_t products = s.experts * s.features + s.top * s.matrix();
  parallel(s.rows, grain(products), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = x + r * s.features;
      T* p = probabilities + r * s.experts;
      std::int32_t* c = chosen + r * s.top;
      math::moe_route(s, row, router, jitter, p, c);
      for (std::int64_t f = 0; f < s.features; ++f) {
        y[r * s.features + f] =
            math::moe_mix(s, f, row, experts, p, c, outputs + r * s.top * s.features);
      }
    }
  });
}

template <typename T>
void moe_backward(const MoeShape& s, const T* gy, const T* x, const T* router, const T* experts,
                  const T* probabilities, const std::int32_t* chosen, const T* outputs, T* gx,
                  T* grouter, T* gexperts) {
  const std::int64_t most =
      std::min(s.rows, std::max<std::int64_t>(1, blocks::kMoeLogits / s.experts));
  T* const glogits = scratch<T, 7>(most * s.experts);
  if (s.rows == 0) {
    if (grouter != nullptr) std::fill_n(grouter, s.experts * s.features, T(0));
    if (gexperts != nullptr) std::fill_n(gexperts, s.experts * s.matrix(), T(0));
  }
  for (std::int64_t first = 0; first < s.rows; first += most) {
    const std::int64_t at = first * s.features;
    const RowsBackward<T> rows{s,
                               std::min(most, s.rows - first),
                               first > 0,
                               gy + at,
                               x == nullptr ? nullptr : x + at,
                               probabilities + first * s.experts,
                               chosen + first * s.top,
                               glogits};
    rows.of_logits(outputs + at * s.top);
    if (gx != nullptr) rows.of_input(router, experts, gx + at);
    if (grouter != nullptr) rows.of_router(grouter);
    if (gexperts != nullptr) rows.of_experts(gexperts);
  }
}

template <typename T>
void count_rows_of_experts(std::int64_t n, std::int64_t experts, const std::int32_t* chosen,
                           T* load) {
  for (std::int64_t e = 0; e < experts; ++e) load[e] = math::moe_load(n, e, chosen, load[e]);
}

REMATCH_MOE_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
