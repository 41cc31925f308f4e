#include "scenarios/stories/frozen_first_block/training.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/loss.h"
#include "engine/random/philox.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::frozen_first_block_story {
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

struct Batch {
  Tensor pictures;  ///< float32 [n, 3, 32, 32]
  Tensor labels;    ///< int32 [n], 0 to 9
};

/// The pictures with these numbers, each drawn from its number alone, so that there is nothing to
/// download: stripes whose direction and width are the class, with weaker ones of a class drawn at
/// random and noise over them. The same bits on every machine.
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

/// The training's own ambient state for a scope: its ledger, and its random streams from where it
/// left them.
class Turn {
 public:
  Turn(const std::shared_ptr<Ledger>& ledger, Streams& streams) : scope_(ledger), kept_(streams) {
    ambient().streams = streams;
  }
  ~Turn() { std::swap(kept_, ambient().streams); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  AmbientScope scope_;
  Streams& kept_;
};

/// First weights come from streams of their own, so that no wiring draws them differently.
Generator weights(std::uint64_t part) { return {kSeed, 1'000 + part, 0}; }

ModulePtr relu() { return activation(nn::ActivationKind::relu); }

ModulePtr convolution(std::int64_t in, std::int64_t out, Generator& g) {
  return std::make_shared<nn::Conv2d>(in, out, 3, 1, 1, true, DType::float32, &g);
}

nn::Sequential block(std::int64_t in, std::int64_t middle, std::int64_t out, Generator g) {
  const ModulePtr first = convolution(in, middle, g);
  const ModulePtr second = convolution(middle, out, g);
  const ModulePtr pool = std::make_shared<nn::Pool2d>(nn::PoolKind::max, 2, 2);
  return nn::Sequential({first, relu(), second, relu(), pool});
}

nn::Sequential head(Generator g) {
  const ModulePtr first = linear_layer(64 * 8 * 8, 512, g);
  const ModulePtr second = linear_layer(512, 10, g);
  const ModulePtr dropout = std::make_shared<nn::RandomLayer>(nn::RandomKind::dropout, 0.5);
  return nn::Sequential({std::make_shared<nn::Flatten>(), first, relu(), dropout, second});
}

}  // namespace

Training::Training(Wiring wiring) : wiring_(std::move(wiring)) {
  const Turn turn(ledger_, streams_);
  parts_ = {block(3, 32, 64, weights(0)), block(64, 64, 64, weights(1)), head(weights(2))};
  for (nn::Sequential& part : parts_) {
    if (wiring_.frozen_by_hand && &part != &parts_.back()) part.set_requires_grad(false);
    parameters_.insert(parameters_.end(), part.parameters().begin(), part.parameters().end());
  }
  optimizer_ = std::make_unique<nn::Adam>(parameters_, 1e-3);
}

Tensor Training::forward(const Tensor& pictures) {
  Tensor x = pictures;
  for (const std::size_t i : {0, 1}) {
    const bool checkpointed = i == 0 ? wiring_.first_checkpointed : wiring_.second_checkpointed;
    const bool inside = checkpointed && wiring_.dropout_inside;
    const Function function = [this, i, inside](const Tensors& in) -> Tensors {
      ++executions_[i];
      const Tensor y = parts_[i](in[0]);
      return {inside ? dropout_(y) : y};
    };
    CheckpointOptions options;
    options.reentrant = wiring_.reentrant;
    options.preserve_rng = wiring_.preserve_rng;
    x = checkpointed ? checkpoint(function, {x}, options)[0] : function({x})[0];
    if (!inside) x = dropout_(x);
  }
  return parts_[2](x);
}

Step Training::step(std::span<const std::int64_t> numbers) {
  const Turn turn(ledger_, streams_);
  Batch batch = make_batch(numbers);
  batch.pictures.set_requires_grad(wiring_.input_requires_grad);
  const std::int64_t warnings_before = frozen_checkpoint_warnings();
  executions_[0] = executions_[1] = 0;

  const Tensor loss = cross_entropy(forward(batch.pictures), batch.labels);
  Step result;
  result.loss = loss.item();
  result.saved_bytes = ledger_->live(Tag::saved);
  backward(loss);
  for (const std::size_t i : {0, 1}) {
    const Tensors& block = parts_[i].parameters();
    result.gradients[i] = static_cast<int>(std::count_if(
        block.begin(), block.end(), [](const Tensor& p) { return p.grad().defined(); }));
    result.executions[i] = executions_[i];
  }
  result.warnings = frozen_checkpoint_warnings() - warnings_before;
  optimizer_->step();
  optimizer_->zero_grad();
  return result;
}

}  // namespace rematch::scenarios::frozen_first_block_story
