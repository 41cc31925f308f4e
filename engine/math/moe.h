#pragma once

// A mixture of experts, row by row, for every backend: one source, so the same bits.

#include <cmath>
#include <cstdint>

#include "engine/math/elementary.h"
#include "engine/math/host_device.h"

namespace rematch::math {

/// `rows` of `features` go to `top` of `experts` each: router[experts, features] says to which, and
/// expert e is a matrix [features, features] at e in experts[experts, features, features].
struct MoeShape {
  std::int64_t rows = 1;
  std::int64_t features = 1;
  std::int64_t experts = 1;
  std::int64_t top = 1;

  REMATCH_HD constexpr std::int64_t outputs() const { return rows * top * features; }
  REMATCH_HD constexpr std::int64_t matrix() const { return features * features; }
};

namespace detail {

template <typename T>
REMATCH_HD inline T dot(std::int64_t n, const T* a, const T* b) {
  T sum = 0;
  REMATCH_UNROLL
  for (std::int64_t i = 0; i < n; ++i) sum = std::fma(a[i], b[i], sum);
  return sum;
}

REMATCH_HD inline bool is_among(std::int64_t e, std::int64_t n, const std::int32_t* chosen) {
  for (std::int64_t j = 0; j < n; ++j) {
    if (chosen[j] == e) return true;
  }
  return false;
}

}  // namespace detail

/// Routes one row: probabilities[experts] of the experts, and the numbers of the `top` likeliest,
/// the first of equals. The logits get `jitter` times what stood in `probabilities`, unless that is
/// 0. With NaN among the probabilities some `top` different experts are chosen.
template <typename T>
REMATCH_HD inline void moe_route(const MoeShape& s, const T* x, const T* router, T jitter,
                                 T* probabilities, std::int32_t* chosen) {
  T highest = -detail::kInfinity<T>;
  for (std::int64_t e = 0; e < s.experts; ++e) {
    const T logit = detail::dot(s.features, x, router + e * s.features);
    const T noisy = jitter == 0 ? logit : std::fma(jitter, probabilities[e], logit);
    probabilities[e] = noisy;
    highest = noisy > highest ? noisy : highest;
  }
  T total = 0;
  for (std::int64_t e = 0; e < s.experts; ++e) {
    probabilities[e] = exp(probabilities[e] - highest);
    total += probabilities[e];
  }
  for (std::int64_t e = 0; e < s.experts; ++e) probabilities[e] /= total;
  for (std::int64_t j = 0; j < s.top; ++j) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < s.experts; ++e) {
      if (detail::is_among(e, j, chosen)) continue;
      if (best < 0 || probabilities[e] > probabilities[best]) best = e;
    }
    chosen[j] = static_cast<std::int32_t>(best);
  }
}

/// Feature f of a row's result; outputs[top, features] gets that of each expert.
template <typename T>
REMATCH_HD inline T moe_mix(const MoeShape& s, std::int64_t f, const T* x, const T* experts,
                            const T* probabilities, const std::int32_t* chosen, T* outputs) {
  T sum = 0;
  for (std::int64_t j = 0; j < s.top; ++j) {
    const std::int64_t e = chosen[j];
    const T y = detail::dot(s.features, x, experts + e * s.matrix() + f * s.features);
    outputs[j * s.features + f] = y;
    sum = std::fma(probabilities[e], y, sum);
  }
  return sum;
}

/// The gradients of a row's logits.
template <typename T>
REMATCH_HD inline void moe_grad_logits(const MoeShape& s, const T* gy, const T* probabilities,
                                       const std::int32_t* chosen, const T* outputs, T* glogits) {
  for (std::int64_t e = 0; e < s.experts; ++e) glogits[e] = 0;
  T mean = 0;
  for (std::int64_t j = 0; j < s.top; ++j) {
    const std::int64_t e = chosen[j];
    glogits[e] = detail::dot(s.features, gy, outputs + j * s.features);
    mean = std::fma(probabilities[e], glogits[e], mean);
  }
  for (std::int64_t e = 0; e < s.experts; ++e) glogits[e] = probabilities[e] * (glogits[e] - mean);
}

/// Feature f of the gradient of a row.
template <typename T>
REMATCH_HD inline T moe_grad_input(const MoeShape& s, std::int64_t f, const T* gy, const T* router,
                                   const T* experts, const T* probabilities,
                                   const std::int32_t* chosen, const T* glogits) {
  T sum = 0;
  for (std::int64_t e = 0; e < s.experts; ++e) {
    sum = std::fma(glogits[e], router[e * s.features + f], sum);
  }
  for (std::int64_t j = 0; j < s.top; ++j) {
    const std::int64_t e = chosen[j];
    const T* column = experts + e * s.matrix() + f;
    T back = 0;
    REMATCH_UNROLL
    for (std::int64_t g = 0; g < s.features; ++g) {
      back = std::fma(gy[g], column[g * s.features], back);
    }
    sum = std::fma(probabilities[e], back, sum);
  }
  return sum;
}

/// `sum`, of feature f of an expert's router weights, continued over `rows` rows.
template <typename T>
REMATCH_HD inline T moe_grad_router(const MoeShape& s, std::int64_t rows, std::int64_t e,
                                    std::int64_t f, const T* x, const T* glogits, T sum) {
  for (std::int64_t r = 0; r < rows; ++r) {
    sum = std::fma(glogits[r * s.experts + e], x[r * s.features + f], sum);
  }
  return sum;
}

/// `sum`, of element [g, f] of an expert's matrix, continued over those of `rows` rows that the
/// expert was given.
template <typename T>
REMATCH_HD inline T moe_grad_expert(const MoeShape& s, std::int64_t rows, std::int64_t e,
                                    std::int64_t g, std::int64_t f, const T* gy, const T* x,
                                    const T* probabilities, const std::int32_t* chosen, T sum) {
  for (std::int64_t r = 0; r < rows; ++r) {
    if (!detail::is_among(e, s.top, chosen + r * s.top)) continue;
    const T weighted = probabilities[r * s.experts + e] * gy[r * s.features + g];
    sum = std::fma(weighted, x[r * s.features + f], sum);
  }
  return sum;
}

/// `load` and the rows that expert e was given.
template <typename T>
REMATCH_HD inline T moe_load(std::int64_t n, std::int64_t e, const std::int32_t* chosen, T load) {
  std::int64_t rows = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (chosen[i] == e) ++rows;
  }
  return load + static_cast<T>(rows);
}

}  // namespace rematch::math
