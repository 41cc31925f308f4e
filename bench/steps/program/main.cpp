// Training steps of known models under known plans, with exact counters beside the time.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "bench/fingerprint/fingerprint.h"
#include "bench/steps/program/device_clock.h"
#include "bench/steps/step.h"
#include "engine/ambient/ambient.h"
#include "engine/cpu/chain.h"
#include "engine/cpu/threads.h"
#include "engine/cuda/runtime/device.h"
#include "engine/cuda/runtime/graph.h"

namespace rematch::bench {
namespace {

struct Arguments {
  Device device = Device::cpu;
  int threads = 1;
  bool tf32 = false;
  cpu::Vectors vectors = cpu::best_vectors();
};

/// Way to give a device a step's work: call by call, or captured once and launched as a whole.
enum class Launch : std::uint8_t { eager, captured };

void measure_captured(benchmark::State& state, Step& step) {
  // Allocations and choices of a first run cannot be captured.
  step.run();
  std::optional<cuda::Graph> graph;
  try {
    graph.emplace(ambient().streams, [&] { step.run(); });
  } catch (const cuda::DeviceError& e) {
    state.SkipWithError((std::string("cannot be captured: ") + e.what()).c_str());
    return;
  }
  DeviceClock clock;
  for (auto _ : state) {
    clock.start();
    graph->run();
    state.SetIterationTime(clock.stop());
  }
}

void measure(benchmark::State& state, const StepSpec& spec, const Arguments& arguments,
             Launch launch) {
  cpu::set_threads(arguments.threads);
  cpu::set_vectors(arguments.vectors);
  const bool on_device = spec.device == Device::cuda;
  if (on_device) {
    cuda::set_precision(arguments.tf32 ? cuda::Precision::tf32 : cuda::Precision::strict);
  }
  Step step(spec);
  const Counted counted = step.count();
  for (const auto& [name, value] : counted.counts) {
    state.counters[std::string(name)] = static_cast<double>(value);
  }
  state.SetLabel("peak in the " + counted.peak.place);
  if (!on_device) {
    for (auto _ : state) step.run();
    return;
  }
  if (launch == Launch::captured) return measure_captured(state, step);
  const std::int64_t before = cuda::operations().slow_convolutions;
  DeviceClock clock;
  for (auto _ : state) {
    clock.start();
    step.run();
    state.SetIterationTime(clock.stop());
  }
  // Since the program began, and beside what the ledger counts: of no step alone.
  const cuda::DeviceBytes bytes = cuda::device_bytes();
  state.counters["device_used_peak_bytes"] = static_cast<double>(bytes.pool_used_peak);
  state.counters["device_reserved_peak_bytes"] = static_cast<double>(bytes.pool_reserved_peak);
  state.counters["workspace_bytes"] = static_cast<double>(bytes.workspaces);
  const std::int64_t slow = cuda::operations().slow_convolutions - before;
  state.counters["slow_convolutions"] =
      static_cast<double>(slow) / static_cast<double>(state.iterations());
  static bool warned = false;
  if (slow > 0 && !std::exchange(warned, true)) {
    std::cerr << "warning: " << cuda::kSlowConvolutionWarning << "\n";
  }
}

void add(const StepSpec& spec, const Arguments& arguments) {
  const auto as = [&](const std::string& name, Launch launch) {
    auto* added = benchmark::RegisterBenchmark(
        name.c_str(), [=](benchmark::State& state) { measure(state, spec, arguments, launch); });
    return added->Unit(benchmark::kMillisecond);
  };
  auto* eager = as(spec.name(), Launch::eager);
  if (spec.device == Device::cpu) {
    eager->UseRealTime();
    return;
  }
  eager->UseManualTime();
  as(spec.name() + "-captured", Launch::captured)->UseManualTime();
}

void add_all(const Arguments& arguments) {
  for (const NamedModel& model : models()) {
    for (const StepSpec& step : usual_steps(model, arguments.device)) {
      add(step, arguments);
    }
    if (arguments.device == Device::cpu || model.name == "tiny") continue;
    // Batches that fill a device.
    const std::int64_t large = model.name == "transformer"                           ? 64
                               : model.name == "cifar" || model.name == "residual32" ? 1024
                                                                                     : 4096;
    for (const Plan& plan : plans()) {
      add({model, plan, large, Numbers::float32, arguments.device}, arguments);
    }
  }
}

constexpr std::string_view kUsage =
    R"(usage: rematch-bench [--device cpu|cuda] [--threads N] [--tf32] [--vectors avx2|avx512]
                     [options of Google Benchmark]

  --device cpu|cuda       where the steps run (default: cpu)
  --threads N             threads of the engine's kernels (default: 1)
  --tf32                  on the device, products in TF32
  --vectors avx2|avx512   width of the CPU's kernels (default: the best that there is)

)";

[[noreturn]] void usage(const std::string& complaint) {
  std::cerr << "rematch-bench: " << complaint << "\n" << kUsage;
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
    if (argument == "--help" || argument == "-h") {
      // Google Benchmark prints its own options after these.
      std::cout << kUsage << std::flush;
      static char help[] = "--help";
      argv[kept++] = help;
    } else if (argument == "--tf32") {
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
