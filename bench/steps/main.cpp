// Training steps of known models under known plans, with exact counters beside the time.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <string>
#include <string_view>

#include "bench/steps/fingerprint.h"
#include "bench/steps/models.h"
#include "bench/steps/plans.h"
#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/backend/device.h"
#include "engine/cpu/chain.h"
#include "engine/cpu/threads.h"
#include "engine/cuda/device.h"
#include "engine/ops/loss.h"

namespace rematch::bench {
namespace {

struct Step {
  NamedModel model;
  Plan plan;
  std::int64_t batch;
  DType dtype;
  Device device;
};

struct Arguments {
  Device device = Device::cpu;
  int threads = 1;
  bool tf32 = false;
  cpu::Vectors vectors = cpu::best_vectors();
};

/// What the layers of one step were entered for. A replay may end inside a layer, which counts.
struct Work {
  std::int64_t runs = 0;
  std::int64_t flops = 0;
};

std::vector<Function> counted(const nn::Sequential& net, Work& work) {
  std::vector<Function> functions;
  functions.reserve(net.modules().size());
  for (const auto& module : net.modules()) {
    functions.emplace_back([m = module.get(), &work, flops = std::make_shared<std::int64_t>(0)](
                               const Tensors& in) -> Tensors {
      ++work.runs;
      work.flops += *flops;
      Tensor y = m->forward(in[0]);
      // Known from the first forward on, which is not the one that is counted.
      *flops = forward_flops(*m, y);
      return {std::move(y)};
    });
  }
  return functions;
}

void run_step(benchmark::State& state, const Step& what, const Arguments& arguments) {
  const AmbientScope scope(std::make_shared<Ledger>(memory_of(what.device)));
  cpu::set_threads(arguments.threads);
  cpu::set_vectors(arguments.vectors);
  if (what.device == Device::cuda) {
    cuda::set_precision(arguments.tf32 ? cuda::Precision::tf32 : cuda::Precision::strict);
  }
  Model model = what.model.make(what.batch, what.dtype);
  model.input.set_requires_grad(true);
  Work work;
  const std::vector<Function> functions = counted(model.net, work);
  Ledger& ledger = *ambient().ledger;
  std::int64_t saved = 0;
  Work forward;
  const auto run = [&] {
    for (Tensor p : model.net.parameters()) p.set_grad({});
    model.input.set_grad({});
    const Tensor loss = mse_loss(bench::run(what.plan, functions, model.input), model.target);
    saved = ledger.live(Tag::saved);
    forward = work;
    backward(loss);
    if (what.device == Device::cuda) cuda::synchronize();
  };
  run();
  const std::int64_t allocations = ledger.allocations();
  ledger.reset_peak();
  work = {};
  run();
  const std::int64_t recomputed = work.flops - forward.flops;
  const auto count = [&](const char* name, std::int64_t value) {
    state.counters[name] = static_cast<double>(value);
  };
  count("peak_bytes", ledger.peak());
  count("saved_bytes", saved);
  count("allocations", ledger.allocations() - allocations);
  count("layer_runs", work.runs);
  count("recomputed_layers", work.runs - forward.runs);
  // A backward makes two products where the forward made one.
  count("flops", 3 * forward.flops + recomputed);
  count("recomputed_flops", recomputed);
  for (auto _ : state) run();
}

void add(const Step& step, const Arguments& arguments) {
  std::string name(step.model.name);
  if (step.batch != step.model.batch) name += "-b" + std::to_string(step.batch);
  name += "/" + std::string(step.plan.name) + "/" + std::string(to_string(step.dtype)) + "/" +
          std::string(to_string(step.device));
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) { run_step(state, step, arguments); })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

void add_all(const Arguments& arguments) {
  for (const NamedModel& model : models()) {
    for (const Plan& plan : plans()) {
      add({model, plan, model.batch, DType::float32, arguments.device}, arguments);
    }
    for (const Plan& plan : plans().first(1)) {
      add({model, plan, model.batch, DType::float64, arguments.device}, arguments);
    }
    if (arguments.device == Device::cpu || model.name == "tiny") continue;
    // What fills a device.
    const std::int64_t large = model.name == "cifar" || model.name == "residual32" ? 1024 : 4096;
    for (const Plan& plan : plans()) {
      add({model, plan, large, DType::float32, arguments.device}, arguments);
    }
  }
}

[[noreturn]] void usage(const std::string& complaint) {
  std::cerr << "rematch-bench: " << complaint
            << "\nusage: rematch-bench [--device cpu|cuda] [--threads N] [--tf32] "
               "[--vectors avx2|avx512] [--benchmark_... of Google Benchmark, see --help]\n";
  std::exit(2);
}

/// Takes our own arguments out of argv.
Arguments take_arguments(int& argc, char** argv) {
  Arguments a;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto value = [&]() -> std::string_view {
      if (++i >= argc) usage(std::string(argument) + " needs a value");
      return argv[i];
    };
    if (argument == "--tf32") {
      a.tf32 = true;
    } else if (argument == "--device") {
      const std::string_view name = value();
      if (name != "cpu" && name != "cuda") {
        usage("--device: expected cpu or cuda, got " + std::string(name));
      }
      a.device = name == "cuda" ? Device::cuda : Device::cpu;
    } else if (argument == "--vectors") {
      const std::string_view name = value();
      if (name != "avx2" && name != "avx512") {
        usage("--vectors: expected avx2 or avx512, got " + std::string(name));
      }
      a.vectors = name == "avx2" ? cpu::Vectors::avx2 : cpu::Vectors::avx512;
      if (a.vectors > cpu::best_vectors()) usage("--vectors: this CPU has no " + std::string(name));
    } else if (argument == "--threads") {
      const std::string_view text = value();
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), a.threads);
      if (error != std::errc() || end != text.data() + text.size() || a.threads < 1 ||
          a.threads > cpu::kMaxThreads) {
        usage("--threads: expected 1.." + std::to_string(cpu::kMaxThreads) + ", got " +
              std::string(text));
      }
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  return a;
}

int run_all(int argc, char** argv) {
  const Arguments arguments = take_arguments(argc, argv);
  if (arguments.device == Device::cuda) cuda::require_device("rematch-bench");
  for (const auto& [name, value] : fingerprint(arguments.device, arguments.threads)) {
    benchmark::AddCustomContext(name, value);
  }
  benchmark::AddCustomContext("precision", arguments.tf32 ? "tf32" : "strict");
  benchmark::AddCustomContext("vectors", std::string(to_string(arguments.vectors)));
  add_all(arguments);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace rematch::bench

int main(int argc, char** argv) {
  try {
    return rematch::bench::run_all(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << "rematch-bench: " << e.what() << "\n";
    return 2;
  }
}
