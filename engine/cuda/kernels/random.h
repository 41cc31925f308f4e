#pragma once

#include <cstdint>

namespace rematch::cuda {

// engine/cpu/random.h on the device, with its contracts: pointers are the device's, work goes to
// stream(). Masks, uniform and normal draws have the CPU's bits for every n and offset: the
// formulas are the same functions (engine/random/draw.h) of the same words. One Philox block serves
// four elements where offset is a multiple of 4, else two do.

// Every kernel here takes element i's randomness from word offset + i of
// PhiloxStream{seed, subsequence} (engine/random/philox.h): the draw depends on nothing else.

template <typename T>
void dropout_forward(std::int64_t n, const T* x, double p, std::uint64_t seed,
                     std::uint64_t subsequence, std::uint64_t offset, std::uint8_t* mask, T* y);

template <typename T>
void dropout_backward(std::int64_t n, const T* gy, const std::uint8_t* mask, double p, T* gx);

template <typename T>
void dropout_factors(std::int64_t n, double p, std::uint64_t seed, std::uint64_t subsequence,
                     std::uint64_t offset, T* factors);

template <typename T>
void rrelu_forward(std::int64_t n, const T* x, T lower, T upper, std::uint64_t seed,
                   std::uint64_t subsequence, std::uint64_t offset, T* noise, T* y);

template <typename T>
void multiply(std::int64_t n, const T* a, const T* b, T* out);

template <typename T>
void gaussian_noise_forward(std::int64_t n, const T* x, T sigma, std::uint64_t seed,
                            std::uint64_t subsequence, std::uint64_t offset, T* y);

/// out = mean + stddev * z with z from Box and Muller (1958): elements 2j and 2j + 1 are
/// sqrt(-2 log u) times cos and sin of 2 pi v, u and v being uniform_double of words offset + 2j
/// and offset + 2j + 1. z is computed in double and rounded to T. With odd n the last pair's second
/// word is used, too. In double z is within 2^-48 of the exact one: log is within 1 ulp, the square
/// root halves that and rounds, cosine and sine are within 2^-52, and |z| < 6.8.
template <typename T>
void fill_normal(std::int64_t n, std::uint64_t seed, std::uint64_t subsequence,
                 std::uint64_t offset, T mean, T stddev, T* out);

template <typename T>
void fill_uniform(std::int64_t n, std::uint64_t seed, std::uint64_t subsequence,
                  std::uint64_t offset, T lo, T hi, T* out);

}  // namespace rematch::cuda
