#include "scenarios/stories/frozen_first_block/training.h"

#include <cmath>

#include "engine/random/philox.h"

namespace rematch::scenarios::frozen {
namespace {

constexpr std::uint64_t kPictureSeed = 7;
constexpr int kSide = 32;
constexpr int kChannels = 3;
constexpr float kNoise = 0.75F;

/// Periods from side to side of a picture, across and down.
struct Stripes {
  int across;
  int down;
};
constexpr Stripes kClasses[] = {{2, 0}, {4, 0}, {8, 0}, {0, 2},  {0, 4},
                                {0, 8}, {3, 3}, {6, 6}, {3, -3}, {6, -6}};

/// From 0 to 1.
float share(std::uint32_t word) { return static_cast<float>(word) * 0x1p-32F; }

/// Between -1 and 1, with period 1. No sine: its last bit depends on the library.
float triangle(float x) { return 4.0F * std::fabs(x - std::floor(x) - 0.5F) - 1.0F; }

/// `begin`: in periods.
struct Layer {
  Stripes stripes;
  float begin;
  float strength;

  float at(int x, int y) const {
    const auto turn = static_cast<float>(stripes.across * x + stripes.down * y) / kSide;
    return strength * triangle(begin + turn);
  }
};

void draw(std::int64_t number, std::int64_t own, float* out) {
  const PhiloxStream random{kPictureSeed, static_cast<std::uint64_t>(number)};
  std::uint64_t word = 0;
  const auto next = [&] { return share(random.word(word++)); };
  const auto other = static_cast<std::int64_t>(random.word(word++) % std::size(kClasses));
  const float weight = 0.5F + 0.5F * next();
  const Layer layers[] = {{kClasses[own], 0.25F * next(), weight},
                          {kClasses[other], 0.25F * next(), 1.0F - weight}};
  for (int channel = 0; channel < kChannels; ++channel) {
    const float colour = 0.5F + 0.5F * next();
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) {
        *out++ =
            colour * (layers[0].at(x, y) + layers[1].at(x, y)) + kNoise * (2.0F * next() - 1.0F);
      }
    }
  }
}

}  // namespace

Batch make_batch(std::span<const std::int64_t> numbers) {
  const auto count = static_cast<std::int64_t>(numbers.size());
  Batch batch{Tensor::empty({count, kChannels, kSide, kSide}, DType::float32, Tag::inputs),
              Tensor::empty({count}, DType::int32, Tag::inputs)};
  auto* picture = batch.pictures.data<float>();
  auto* label = batch.labels.data<std::int32_t>();
  for (const std::int64_t number : numbers) {
    *label = static_cast<std::int32_t>(number % std::ssize(kClasses));
    draw(number, *label++, picture);
    picture += kChannels * kSide * kSide;
  }
  return batch;
}

}  // namespace rematch::scenarios::frozen
