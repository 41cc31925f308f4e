#include "scenarios/stories/frozen_first_block/network.h"

#include <memory>
#include <vector>

#include "engine/checkpoint/checkpoint.h"

namespace rematch::scenarios::frozen {
namespace {

using Layers = std::vector<std::shared_ptr<nn::Module>>;

std::shared_ptr<nn::Module> relu() {
  return std::make_shared<nn::Activation>(nn::ActivationKind::relu);
}

Layers block(std::int64_t in, std::int64_t middle, std::int64_t out, Generator& g) {
  return {std::make_shared<nn::Conv2d>(in, middle, 3, 1, 1, true, DType::float32, &g), relu(),
          std::make_shared<nn::Conv2d>(middle, out, 3, 1, 1, true, DType::float32, &g), relu(),
          std::make_shared<nn::Pool2d>(nn::PoolKind::max, 2, 2)};
}

Layers head(Generator& g) {
  return {std::make_shared<nn::Flatten>(),
          std::make_shared<nn::Linear>(64 * 8 * 8, 512, true, DType::float32, &g), relu(),
          std::make_shared<nn::RandomLayer>(nn::RandomKind::dropout, 0.5),
          std::make_shared<nn::Linear>(512, 10, true, DType::float32, &g)};
}

/// First weights come from a stream of their own, so that no wiring draws them differently.
Generator weights(std::uint64_t seed, std::uint64_t part) { return {seed, 1'000 + part, 0}; }

nn::Sequential made(Layers (*make)(Generator&), Generator g) { return nn::Sequential(make(g)); }

}  // namespace

Network::Network(const Wiring& wiring, std::uint64_t seed)
    : wiring_(wiring),
      blocks_{made([](Generator& g) { return block(3, 32, 64, g); }, weights(seed, 0)),
              made([](Generator& g) { return block(64, 64, 64, g); }, weights(seed, 1))},
      head_(made(head, weights(seed, 2))) {
  for (int i = 0; i < 2; ++i) {
    if (i < wiring.frozen_by_hand) blocks_[i].set_requires_grad(false);
    parameters_.insert(parameters_.end(), blocks_[i].parameters().begin(),
                       blocks_[i].parameters().end());
  }
  parameters_.insert(parameters_.end(), head_.parameters().begin(), head_.parameters().end());
}

Tensor Network::run_block(int block, bool checkpointed, const Tensor& x) {
  const bool inside = checkpointed && wiring_.dropout_inside;
  const Function function = [this, block, inside](const Tensors& in) -> Tensors {
    ++executions_[block];
    const Tensor y = blocks_[block](in[0]);
    return {inside ? dropout_(y) : y};
  };
  CheckpointOptions options;
  options.reentrant = wiring_.reentrant;
  options.preserve_rng = wiring_.preserve_rng;
  const Tensor y = checkpointed ? checkpoint(function, {x}, options)[0] : function({x})[0];
  return inside ? y : dropout_(y);
}

Tensor Network::forward(const Tensor& pictures) {
  Tensor x = run_block(0, wiring_.first_checkpointed, pictures);
  x = run_block(1, wiring_.second_checkpointed, x);
  return head_(x);
}

void Network::set_training(bool on) {
  for (nn::Sequential& b : blocks_) b.set_training(on);
  dropout_.set_training(on);
  head_.set_training(on);
}

}  // namespace rematch::scenarios::frozen
