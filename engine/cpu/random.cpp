#include "engine/kernels/random.h"

#include <algorithm>

#include "engine/cpu/block_sizes.h"
#include "engine/cpu/philox_words.h"
#include "engine/cpu/threads.h"
#include "engine/random/draw.h"
#include "engine/random/philox.h"

namespace rematch::cpu {

namespace {

constexpr std::int64_t kChunk = blocks::kDraws;

/// Prefetches the chunk of x after the one of `count` elements at `first`. Drawing random numbers
/// takes longer than a memory access and keeps the hardware prefetcher from seeing the pattern.
template <typename T>
void prefetch_next(const T* x, std::int64_t first, std::int64_t count, std::int64_t n) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  const std::int64_t end = std::min(n, first + count + kChunk);
  for (std::int64_t i = first + count; i < end; i += kLine) __builtin_prefetch(x + i);
}

/// Calls use(first element, count, words) over chunks of [begin, end); words[j] is the stream's
/// word offset + first + j, and at least count + 1 of them may be read.
template <typename Use>
void chunks_of(PhiloxWords draw, std::int64_t begin, std::int64_t end, const PhiloxStream& stream,
               std::uint64_t offset, const Use& use) {
  alignas(64) std::uint32_t words[kChunk + 2 * kPhiloxStep];
  for (std::int64_t first = begin; first < end; first += kChunk) {
    const std::int64_t count = std::min(kChunk, end - first);
    const std::uint64_t position = offset + static_cast<std::uint64_t>(first);
    const auto skip = static_cast<std::int64_t>(position % 4);
    draw(stream.seed, stream.subsequence, position / 4, (skip + count) / kPhiloxStep + 1, words);
    use(first, count, words + skip);
  }
}

/// The same over [0, n), in parallel.
template <typename Use>
void for_each_chunk(std::int64_t n, const PhiloxStream& stream, std::uint64_t offset,
                    const Use& use) {
  const PhiloxWords draw = philox_words(vectors());
  parallel(n, kGrain / 4, kChunk, [&](std::int64_t begin, std::int64_t end) {
    chunks_of(draw, begin, end, stream, offset, use);
  });
}

/// Calls use(i, z) with element i's standard normal.
template <typename Use>
void for_each_normal(std::int64_t n, const PhiloxStream& stream, std::uint64_t offset,
                     const Use& use) {
  for_each_chunk(n, stream, offset,
                 [&](std::int64_t first, std::int64_t count, const std::uint32_t* words) {
                   double cosines[kChunk / 2];
                   double sines[kChunk / 2];
                   const std::int64_t pairs = (count + 1) / 2;
                   for (std::int64_t j = 0; j < pairs; ++j) {
                     const math::CosSin z = math::normal_pair(words[2 * j], words[2 * j + 1]);
                     cosines[j] = z.cos;
                     sines[j] = z.sin;
                   }
                   for (std::int64_t j = 0; j < count / 2; ++j) {
                     use(first + 2 * j, cosines[j]);
                     use(first + 2 * j + 1, sines[j]);
                   }
                   if (count % 2 == 1) use(first + count - 1, cosines[pairs - 1]);
                 });
}

}  // namespace

template <typename T>
void dropout_forward(std::int64_t n, const T* x, double p, std::uint64_t seed,
                     std::uint64_t subsequence, std::uint64_t offset, std::uint8_t* mask, T* y) {
  const std::uint64_t threshold = keep_threshold(p);
  const T factor = math::dropout_factor<T>(p);
  if (threshold == 0) {
    std::fill_n(mask, n, std::uint8_t{0});
    std::fill_n(y, n, T(0));
    return;
  }
  // word < threshold, in 32 bits so that all 2^32 words can pass.
  const auto last_kept = static_cast<std::uint32_t>(threshold - 1);
  for_each_chunk(n, {seed, subsequence}, offset,
                 [=](std::int64_t first, std::int64_t count, const std::uint32_t* words) {
                   prefetch_next(x, first, count, n);
                   const T* from = x + first;
                   T* to = y + first;
                   std::uint8_t* kept = mask + first;
                   for (std::int64_t j = 0; j < count; ++j) {
                     to[j] = math::dropout(from[j], factor, words[j] <= last_kept);
                   }
                   for (std::int64_t j = 0; j < count; ++j) {
                     kept[j] = words[j] <= last_kept ? 1 : 0;
                   }
                 });
}

template <typename T>
void dropout_backward(std::int64_t n, const T* gy, const std::uint8_t* mask, double p, T* gx) {
  const T factor = math::dropout_factor<T>(p);
  parallel_elements(n, [=](std::int64_t i) { gx[i] = math::dropout(gy[i], factor, mask[i] != 0); });
}

template <typename T>
void dropout_factors(std::int64_t n, double p, std::uint64_t seed, std::uint64_t subsequence,
                     std::uint64_t offset, T* factors) {
  const std::uint64_t threshold = keep_threshold(p);
  const T factor = math::dropout_factor<T>(p);
  for_each_chunk(n, {seed, subsequence}, offset,
                 [=](std::int64_t first, std::int64_t count, const std::uint32_t* words) {
                   for (std::int64_t j = 0; j < count; ++j) {
                     factors[first + j] = words[j] < threshold ? factor : T(0);
                   }
                 });
}

template <typename T>
void rrelu_forward(std::int64_t n, const T* x, T lower, T upper, std::uint64_t seed,
                   std::uint64_t subsequence, std::uint64_t offset, T* noise, T* y) {
  const T span = upper - lower;
  for_each_chunk(n, {seed, subsequence}, offset,
                 [=](std::int64_t first, std::int64_t count, const std::uint32_t* words) {
                   for (std::int64_t j = 0; j < count; ++j) {
                     const T value = x[first + j];
                     const T factor = math::rrelu_noise(value, lower, span, words[j]);
                     noise[first + j] = factor;
                     y[first + j] = value * factor;
                   }
                 });
}

template <typename T>
void multiply(std::int64_t n, const T* a, const T* b, T* out) {
  parallel_elements(n, [=](std::int64_t i) { out[i] = a[i] * b[i]; });
}

template <typename T>
void gaussian_noise_forward(std::int64_t n, const T* x, T sigma, std::uint64_t seed,
                            std::uint64_t subsequence, std::uint64_t offset, T* y) {
  for_each_normal(n, {seed, subsequence}, offset,
                  [=](std::int64_t i, double z) { y[i] = math::normal_around(x[i], sigma, z); });
}

template <typename T>
void fill_normal(std::int64_t n, std::uint64_t seed, std::uint64_t subsequence,
                 std::uint64_t offset, T mean, T stddev, T* out) {
  for_each_normal(n, {seed, subsequence}, offset,
                  [=](std::int64_t i, double z) { out[i] = math::normal_around(mean, stddev, z); });
}

template <typename T>
void fill_uniform(std::int64_t n, std::uint64_t seed, std::uint64_t subsequence,
                  std::uint64_t offset, T lo, T hi, T* out) {
  const T span = hi - lo;
  for_each_chunk(n, {seed, subsequence}, offset,
                 [=](std::int64_t first, std::int64_t count, const std::uint32_t* words) {
                   for (std::int64_t j = 0; j < count; ++j) {
                     out[first + j] = math::uniform_between(lo, span, words[j]);
                   }
                 });
}

REMATCH_RANDOM_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
