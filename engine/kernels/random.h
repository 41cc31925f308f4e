#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"

namespace rematch {

// Every kernel here takes element i's randomness from word offset + i of
// PhiloxStream{seed, subsequence} (engine/random/philox.h): the draw depends on nothing else.
// On the device one Philox block serves four elements where offset is a multiple of 4, else two do.

/// Inverted dropout: mask[i] = 1 when word i < keep_threshold(p), else 0; y = x * (1 / (1 - p))
/// where kept, +0 elsewhere. 0 <= p <= 1.
REMATCH_DECLARE(void dropout_forward(std::int64_t n, const T* x, double p, std::uint64_t seed,
                                     std::uint64_t subsequence, std::uint64_t offset,
                                     std::uint8_t* mask, T* y));

/// gx = gy * (1 / (1 - p)) where mask is 1, +0 elsewhere.
REMATCH_DECLARE(void dropout_backward(std::int64_t n, const T* gy, const std::uint8_t* mask,
                                      double p, T* gx));

/// factors[i] = 1 / (1 - p) when dropout_forward keeps element i, else +0. 0 <= p < 1.
REMATCH_DECLARE(void dropout_factors(std::int64_t n, double p, std::uint64_t seed,
                                     std::uint64_t subsequence, std::uint64_t offset, T* factors));

/// Randomised leaky ReLU in training (Xu et al., 2015): noise = 1 where x >= 0, else
/// lower + (upper - lower) * u; y = x * noise. u is uniform_float's (float) or uniform_double's.
/// Backward is multiply(n, gy, noise, gx).
REMATCH_DECLARE(void rrelu_forward(std::int64_t n, const T* x, T lower, T upper, std::uint64_t seed,
                                   std::uint64_t subsequence, std::uint64_t offset, T* noise,
                                   T* y));

/// out = a * b.
REMATCH_DECLARE(void multiply(std::int64_t n, const T* a, const T* b, T* out));

/// y = x + sigma * z, z as fill_normal draws it with mean 0 and deviation 1.
REMATCH_DECLARE(void gaussian_noise_forward(std::int64_t n, const T* x, T sigma, std::uint64_t seed,
                                            std::uint64_t subsequence, std::uint64_t offset, T* y));

/// out = mean + stddev * z with z from Box and Muller (1958): elements 2j and 2j + 1 are
/// sqrt(-2 log u) times cos and sin of 2 pi v, u and v being uniform_double of words offset + 2j
/// and offset + 2j + 1. z is computed in double and rounded to T. With odd n the last pair's second
/// word is used, too. In double z is within 2^-48 of the exact one: log is within 1 ulp, the square
/// root halves that and rounds, cosine and sine are within 2^-52, and |z| < 6.8.
REMATCH_DECLARE(void fill_normal(std::int64_t n, std::uint64_t seed, std::uint64_t subsequence,
                                 std::uint64_t offset, T mean, T stddev, T* out));

/// out = lo + (hi - lo) * u, u as in rrelu_forward.
REMATCH_DECLARE(void fill_uniform(std::int64_t n, std::uint64_t seed, std::uint64_t subsequence,
                                  std::uint64_t offset, T lo, T hi, T* out));

#define REMATCH_RANDOM_KERNELS(K) \
  K(dropout_forward);             \
  K(dropout_backward);            \
  K(dropout_factors);             \
  K(rrelu_forward);               \
  K(multiply);                    \
  K(gaussian_noise_forward);      \
  K(fill_normal);                 \
  K(fill_uniform)

}  // namespace rematch
