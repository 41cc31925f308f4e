// Training steps of known models, plain and checkpointed, on the CPU and, where there is one, on a
// CUDA device; with the exact peak of requested bytes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/backend/device.h"
#include "engine/checkpoint/sequential.h"
#include "engine/cuda/device.h"
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

/// 1024-1024-1024-10 with ReLUs between.
Model tutorial(std::int64_t batch) {
  Generator g{1, 0, 0};
  Layers l;
  l.push_back(std::make_shared<nn::Linear>(1024, 1024, true, DType::float32, &g));
  l.push_back(std::make_shared<nn::Activation>(nn::ActivationKind::relu));
  l.push_back(std::make_shared<nn::Linear>(1024, 1024, true, DType::float32, &g));
  l.push_back(std::make_shared<nn::Activation>(nn::ActivationKind::relu));
  l.push_back(std::make_shared<nn::Linear>(1024, 10, true, DType::float32, &g));
  return {nn::Sequential(l), drawn({batch, 1024}, g), drawn({batch, 10}, g)};
}

/// 64 times Linear(256), ReLU, Dropout(0.1).
Model deep(std::int64_t batch) {
  Generator g{2, 0, 0};
  Layers l;
  for (int i = 0; i < 64; ++i) {
    l.push_back(std::make_shared<nn::Linear>(256, 256, true, DType::float32, &g));
    l.push_back(std::make_shared<nn::Activation>(nn::ActivationKind::relu));
    l.push_back(std::make_shared<nn::RandomLayer>(nn::RandomKind::dropout, 0.1));
  }
  return {nn::Sequential(l), drawn({batch, 256}, g), drawn({batch, 256}, g)};
}

/// The small CIFAR-10 network of many tutorials.
Model cifar(std::int64_t batch) {
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
  return {nn::Sequential(l), drawn({batch, 3, 32, 32}, g), drawn({batch, 10}, g)};
}

struct Step {
  Model (*make)(std::int64_t batch);
  std::int64_t batch;
  int segments;  ///< 0: a plain step.
  bool reentrant;
  Device device;
  cuda::Precision precision;
};

void run_step(benchmark::State& state, const Step& what) {
  const AmbientScope scope(std::make_shared<Ledger>(memory_of(what.device)));
  if (what.device == Device::cuda) cuda::set_precision(what.precision);
  Model model = what.make(what.batch);
  model.input.set_requires_grad(true);
  const std::vector<Function> functions = model.net.functions();
  CheckpointOptions options;
  options.reentrant = what.reentrant;
  std::int64_t saved = 0;
  const auto run = [&] {
    for (Tensor p : model.net.parameters()) p.set_grad({});
    model.input.set_grad({});
    Tensor y = what.segments == 0 ? model.net(model.input)
                                  : checkpoint_sequential(functions, what.segments, {model.input},
                                                          LastSegment::stored, options)[0];
    const Tensor loss = mse_loss(y, model.target);
    y = Tensor();
    saved = ambient().ledger->live(Tag::saved);
    backward(loss);
    if (what.device == Device::cuda) cuda::synchronize();
  };
  run();
  Ledger& ledger = *ambient().ledger;
  ledger.reset_peak();
  run();
  state.counters["peak_bytes"] = static_cast<double>(ledger.peak());
  state.counters["saved_bytes"] = static_cast<double>(saved);
  for (auto _ : state) run();
}

struct Named {
  const char* name;
  Model (*make)(std::int64_t);
  std::int64_t batch;
  std::vector<int> segments;
};

/// Names are MODEL/bBATCH/SEGMENTS/VARIANT/DEVICE; bench/peers/compare_steps reads them.
void register_steps(Device device, cuda::Precision precision, const Named& model) {
  for (const int segments : model.segments) {
    for (const bool reentrant : {false, true}) {
      if (segments == 0 && reentrant) continue;
      const Step step{model.make, model.batch, segments, reentrant, device, precision};
      const std::string variant = segments == 0 ? "plain"
                                  : reentrant   ? "reentrant"
                                                : "nonreentrant";
      benchmark::RegisterBenchmark(
          (std::string(model.name) + "/b" + std::to_string(model.batch) + "/" +
           std::to_string(segments) + "/" + variant + "/" + std::string(to_string(device)))
              .c_str(),
          [step](benchmark::State& state) { run_step(state, step); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    }
  }
}

}  // namespace
}  // namespace rematch

int main(int argc, char** argv) {
  using namespace rematch;
  // Google Benchmark does not know this one.
  const auto given = std::find(argv + 1, argv + argc, std::string_view("--tf32"));
  const bool tf32 = given != argv + argc;
  if (tf32) argc = static_cast<int>(std::remove(given, argv + argc, *given) - argv);
  const auto precision = tf32 ? cuda::Precision::tf32 : cuda::Precision::strict;
  benchmark::AddCustomContext("precision", tf32 ? "tf32 (device)" : "strict");
  const Named kSmall[] = {{"mymodel", tutorial, 32, {0, 2, 5}},
                          {"cifar", cifar, 64, {0, 2, 4}},
                          {"deep64", deep, 64, {0, 8, 16}}};
  const Named kLarge[] = {{"mymodel", tutorial, 4096, {0, 2, 5}},
                          {"cifar", cifar, 1024, {0, 2, 4}},
                          {"deep64", deep, 4096, {0, 8, 16}}};
  for (const Named& model : kSmall) register_steps(Device::cpu, precision, model);
  if (cuda::device_count() > 0) {
    benchmark::AddCustomContext("device", device_description(Device::cuda));
    for (const Named& model : kSmall) register_steps(Device::cuda, precision, model);
    for (const Named& model : kLarge) register_steps(Device::cuda, precision, model);
  }
  benchmark::AddCustomContext("build", device_description(Device::cpu));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
