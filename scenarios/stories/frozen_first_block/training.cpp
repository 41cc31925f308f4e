#include "scenarios/stories/frozen_first_block/training.h"

#include <algorithm>
#include <utility>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/loss.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::frozen {
namespace {

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

}  // namespace rematch::scenarios::frozen
