#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/steps/models.h"
#include "bench/steps/peak.h"
#include "bench/steps/plans.h"
#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/offload.h"
#include "engine/memory/resource.h"

namespace rematch::bench {

/// Numbers that a step computes in: all in one dtype, or float32 with a forward under autocast.
enum class Numbers : std::uint8_t { float32, float64, autocast };
/// "float32", "float64", "bfloat16-autocast".
std::string_view to_string(Numbers numbers);

struct StepSpec {
  NamedModel model;
  Plan plan;
  std::int64_t batch;
  Numbers numbers;
  Device device;

  /// "cifar/sqrt/float32/cpu"; with a batch that is not the usual one "cifar-b1024/...".
  std::string name() const;
};

/// Name and value, in the order in which they are shown.
using Counts = std::vector<std::pair<std::string_view, std::int64_t>>;

struct Counted {
  Counts counts;
  Peak peak;
};

/// A training step that can be repeated: forward, mean squared error, backward; gradients are
/// dropped at its beginning. Its own ambient state is that of the thread while it lives.
class Step {
 public:
  explicit Step(const StepSpec& spec);
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// On a device the work is queued when it returns.
  void run();

  /// Runs once and counts: peak_bytes of the whole step, saved_bytes and, where something is
  /// offloaded, offloaded_bytes when the forward is over, allocations, layer_runs (recomputations
  /// included), recomputed_layers, flops, recomputed_flops. The same on every machine, for every
  /// number of threads, and in every step.
  Counted count();

 private:
  /// Work for which the layers of one step were entered. A recomputation may end inside a layer,
  /// which counts.
  struct Work {
    std::int64_t runs = 0;
    std::int64_t flops = 0;
  };

  Function counted(std::size_t layer);
  void drop_gradients();

  StepSpec spec_;
  AmbientScope scope_;
  std::unique_ptr<Offload> offload_;
  Model model_;
  std::vector<Function> functions_;
  std::vector<std::int64_t> layer_flops_;
  Work work_;
  Work forward_;
  std::int64_t saved_ = 0;
  std::int64_t offloaded_ = 0;
  PeakWatch* watch_ = nullptr;
};

/// Steps of a model that rematch-bench runs at its usual batch: every plan in float32, plain and
/// sqrt in the other numbers.
std::vector<StepSpec> usual_steps(const NamedModel& model, Device device);

}  // namespace rematch::bench
