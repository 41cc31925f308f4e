// Training steps of known models, plain and checkpointed. Each checkpointed figure comes with its
// ratio to the plain one and with the exact counters that explain it.
#include <benchmark/benchmark.h>

#include <string>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/sequential.h"
#include "engine/nn/layers.h"
#include "engine/ops/loss.h"

namespace rematch {
namespace {

using Layers = std::vector<std::shared_ptr<nn::Module>>;

struct Model {
  nn::Sequential net;
  Tensor input;
  Tensor target;
};

Tensor drawn(const Shape& shape, Generator& g) {
  Tensor t = Tensor::empty(shape, DType::float32, Tag::inputs);
  nn::fill_normal(t, g);
  return t;
}

/// 1024-1024-1024-10 with ReLUs between, batch 32.
Model tutorial() {
  Generator g{1, 0, 0};
  Layers l;
  l.push_back(std::make_shared<nn::Linear>(1024, 1024, true, DType::float32, &g));
  l.push_back(std::make_shared<nn::Activation>(nn::ActivationKind::relu));
  l.push_back(std::make_shared<nn::Linear>(1024, 1024, true, DType::float32, &g));
  l.push_back(std::make_shared<nn::Activation>(nn::ActivationKind::relu));
  l.push_back(std::make_shared<nn::Linear>(1024, 10, true, DType::float32, &g));
  return {nn::Sequential(l), drawn({32, 1024}, g), drawn({32, 10}, g)};
}

/// 64 times Linear(256), ReLU, Dropout(0.1), batch 64.
Model deep() {
  Generator g{2, 0, 0};
  Layers l;
  for (int i = 0; i < 64; ++i) {
    l.push_back(std::make_shared<nn::Linear>(256, 256, true, DType::float32, &g));
    l.push_back(std::make_shared<nn::Activation>(nn::ActivationKind::relu));
    l.push_back(std::make_shared<nn::RandomLayer>(nn::RandomKind::dropout, 0.1));
  }
  return {nn::Sequential(l), drawn({64, 256}, g), drawn({64, 256}, g)};
}

/// The small CIFAR-10 network of many tutorials, batch 16.
Model cifar() {
  Generator g{3, 0, 0};
  Layers l;
  const auto conv = [&](std::int64_t in, std::int64_t out) {
    l.push_back(std::make_shared<nn::Conv2d>(in, out, 3, 1, 1, true, DType::float32, &g));
    l.push_back(std::make_shared<nn::Activation>(nn::ActivationKind::relu));
  };
  const auto pool = [&] {
    l.push_back(std::make_shared<nn::Pool2d>(nn::PoolKind::max, 2, 2));
    l.push_back(std::make_shared<nn::RandomLayer>(nn::RandomKind::dropout, 0.25));
  };
  conv(3, 32);
  conv(32, 64);
  pool();
  conv(64, 64);
  conv(64, 64);
  pool();
  l.push_back(std::make_shared<nn::Flatten>());
  l.push_back(std::make_shared<nn::Linear>(64 * 8 * 8, 512, true, DType::float32, &g));
  l.push_back(std::make_shared<nn::Activation>(nn::ActivationKind::relu));
  l.push_back(std::make_shared<nn::RandomLayer>(nn::RandomKind::dropout, 0.5));
  l.push_back(std::make_shared<nn::Linear>(512, 10, true, DType::float32, &g));
  return {nn::Sequential(l), drawn({16, 3, 32, 32}, g), drawn({16, 10}, g)};
}

/// range(0): segments, 0 for a plain step; range(1): reentrant.
void step(benchmark::State& state, Model (*make)()) {
  Model model = make();
  model.input.set_requires_grad(true);
  const std::vector<Function> functions = model.net.functions();
  const int segments = static_cast<int>(state.range(0));
  CheckpointOptions options;
  options.reentrant = state.range(1) != 0;
  const auto run = [&] {
    Tensor y = segments == 0 ? model.net(model.input)
                             : checkpoint_sequential(functions, segments, {model.input},
                                                     LastSegment::stored, options)[0];
    const Tensor loss = mse_loss(y, model.target);
    y = Tensor();
    backward(loss);
  };
  run();
  Ledger& ledger = *ambient().ledger;
  const std::int64_t base = ledger.live();
  ledger.reset_peak();
  run();
  state.counters["peak_bytes"] = static_cast<double>(ledger.peak() - base);
  for (auto _ : state) run();
}

BENCHMARK_CAPTURE(step, tutorial, tutorial)
    ->ArgsProduct({{0, 2, 5}, {0, 1}})
    ->ArgNames({"segments", "reentrant"})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step, deep, deep)
    ->ArgsProduct({{0, 8, 16}, {0, 1}})
    ->ArgNames({"segments", "reentrant"})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step, cifar, cifar)
    ->ArgsProduct({{0, 2, 4}, {0, 1}})
    ->ArgNames({"segments", "reentrant"})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rematch
