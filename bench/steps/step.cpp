#include "bench/steps/step.h"

#include <optional>
#include <stdexcept>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/backend/device.h"
#include "engine/cuda/runtime/device.h"
#include "engine/ops/cast.h"
#include "engine/ops/loss.h"

namespace rematch::bench {

namespace {

class Inside {
 public:
  Inside(PeakWatch* watch, int layer) : watch_(watch) {
    if (watch_ != nullptr) watch_->enter(layer);
  }
  ~Inside() {
    if (watch_ != nullptr) watch_->leave();
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  PeakWatch* watch_;
};

}  // namespace

std::string_view to_string(Numbers numbers) {
  switch (numbers) {
    case Numbers::float32:
      return "float32";
    case Numbers::float64:
      return "float64";
    case Numbers::autocast:
      return "bfloat16-autocast";
  }
  return "";
}

std::string StepSpec::name() const {
  std::string text(model.name);
  if (batch != model.batch) text += "-b" + std::to_string(batch);
  for (const std::string_view part : {plan.name, to_string(numbers), rematch::to_string(device)}) {
    text += "/";
    text += part;
  }
  return text;
}

Step::Step(const StepSpec& spec)
    : spec_(spec),
      scope_(std::make_shared<Ledger>(memory_of(spec.device))),
      model_(spec.model.make(spec.batch,
                             spec.numbers == Numbers::float64 ? DType::float64 : DType::float32)) {
  if (spec.plan.offload) offload_ = std::make_unique<Offload>();
  model_.input.set_requires_grad(true);
  layer_flops_.resize(model_.net.modules().size());
  for (std::size_t i = 0; i < layer_flops_.size(); ++i) functions_.push_back(counted(i));
}

Function Step::counted(std::size_t layer) {
  return [this, layer](const Tensors& in) -> Tensors {
    ++work_.runs;
    // Counts the run before. A recomputation may end inside the layer, by an exception.
    work_.flops += layer_flops_[layer];
    const bool is_first = layer_flops_[layer] == 0;
    nn::Module& module = *model_.net.modules()[layer];
    const Inside inside(watch_, static_cast<int>(layer));
    Tensor y = module.forward(in[0]);
    layer_flops_[layer] = forward_flops(module, y);
    if (is_first) work_.flops += layer_flops_[layer];
    if (watch_ != nullptr) watch_->made(static_cast<int>(layer), y);
    return {std::move(y)};
  };
}

void Step::drop_gradients() {
  for (Tensor p : model_.net.parameters()) p.set_grad({});
  model_.input.set_grad({});
}

void Step::run() {
  drop_gradients();
  Tensor loss;
  {
    std::optional<AutocastScope> autocast;
    if (spec_.numbers == Numbers::autocast) autocast.emplace();
    std::optional<OffloadScope> offload;
    if (offload_) offload.emplace(*offload_);
    const Tensor y = bench::run(spec_.plan, functions_, model_.input);
    if (watch_ != nullptr) watch_->enter_loss();
    // Follows PyTorch's autocast, which runs losses in float32.
    loss = mse_loss(cast(y, model_.target.dtype()), model_.target);
  }
  saved_ = ambient().ledger->live(Tag::saved);
  offloaded_ = offload_ ? offload_->ledger().live() : 0;
  forward_ = work_;
  if (watch_ != nullptr) watch_->begin_backward();
  backward(loss);
}

Counted Step::count() {
  Ledger& ledger = *ambient().ledger;
  // Drops what an earlier step left.
  drop_gradients();
  ledger.reset_peak();
  const std::int64_t allocations = ledger.allocations();
  work_ = {};
  PeakWatch watch(ledger, model_.names);
  watch_ = &watch;
  try {
    run();
  } catch (...) {
    watch_ = nullptr;
    throw;
  }
  watch_ = nullptr;
  if (spec_.device == Device::cuda) cuda::synchronize();
  Counted counted{{}, watch.peak()};
  if (counted.peak.bytes != ledger.peak()) {
    throw std::logic_error("[step] the peak of the ledger's events is not its peak");
  }
  Counts& counts = counted.counts;
  counts = {{"peak_bytes", ledger.peak()}, {"saved_bytes", saved_}};
  if (offload_) counts.emplace_back("offloaded_bytes", offloaded_);
  counts.emplace_back("allocations", ledger.allocations() - allocations);
  counts.emplace_back("layer_runs", work_.runs);
  counts.emplace_back("recomputed_layers", work_.runs - forward_.runs);
  // A backward makes two products where the forward made one. Fused attention makes five for two:
  // the scores again, which are not counted.
  const std::int64_t recomputed = work_.flops - forward_.flops;
  counts.emplace_back("flops", 3 * forward_.flops + recomputed);
  counts.emplace_back("recomputed_flops", recomputed);
  return counted;
}

std::vector<StepSpec> usual_steps(const NamedModel& model, Device device) {
  std::vector<StepSpec> steps;
  for (const Numbers numbers : {Numbers::float32, Numbers::float64, Numbers::autocast}) {
    for (const Plan& plan : plans()) {
      const bool is_wanted =
          numbers == Numbers::float32 || plan.name == "plain" || plan.name == "sqrt";
      if (is_wanted) steps.push_back({model, plan, model.batch, numbers, device});
    }
  }
  return steps;
}

}  // namespace rematch::bench
