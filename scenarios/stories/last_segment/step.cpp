#include "scenarios/stories/last_segment/parts.h"

#include <algorithm>

#include "engine/checkpoint/sequential.h"
#include "engine/ops/activation.h"
#include "engine/ops/loss.h"

namespace rematch::scenarios::last_segment_story {
namespace {

Tensor made_input(const Net& net, Generator& generator) {
  Tensor t = Tensor::empty({net.rows, net.width}, DType::float32, Tag::inputs);
  nn::fill_uniform(t, 1, generator);
  return t;
}

/// The functions of the net; each leaves a weak pointer to what it returned in its first run.
std::vector<Function> functions_of(const std::vector<ModulePtr>& layers,
                                   std::vector<std::weak_ptr<Storage>>& outputs) {
  std::vector<Function> functions;
  outputs.resize(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    functions.emplace_back([layer = layers[i], &output = outputs[i]](const Tensors& in) {
      const Tensor y = tanh(layer->forward(in[0]));
      if (!ambient().recomputing) output = y.storage();
      return Tensors{y};
    });
  }
  return functions;
}

Tensor sequential_part(std::span<const Function> functions, const How& how, const Tensor& x) {
  const CheckpointOptions options{.reentrant = how.reentrant};
  if (how.segments == 0) return run_regions(functions, {}, x);
  return checkpoint_sequential(functions, how.segments, {x}, how.last, options)[0];
}

}  // namespace

Step run(const Net& net, const Head& head, const How& how) {
  Step step;
  const auto ledger = std::make_shared<Ledger>();
  const AmbientScope scope(ledger, 1);
  Generator generator{1, 0, 0};
  std::vector<ModulePtr> layers(static_cast<std::size_t>(net.layers));
  std::vector<ModulePtr> behind(static_cast<std::size_t>(head.layers));
  for (std::vector<ModulePtr>* some : {&layers, &behind}) {
    for (ModulePtr& layer : *some) layer = linear_layer(net.width, net.width, generator);
  }
  if (head.wide > 0) {
    behind.push_back(linear_layer(net.width, head.wide, generator));
    behind.push_back(linear_layer(head.wide, net.width, generator));
  }
  const Tensor x = made_input(net, generator).set_requires_grad(net.input_requires_grad);
  const Tensor target = made_input(net, generator);
  std::vector<std::weak_ptr<Storage>> outputs;
  const std::vector<Function> functions = counting(functions_of(layers, outputs), step.order);

  const std::int64_t base = ledger->live();
  ledger->record_timeline(true);
  {
    Tensor y = sequential_part(functions, how, x);
    step.after_sequential = ledger->live() - base;
    for (const auto& output : outputs) step.alive.push_back(!output.expired());
    const std::size_t head_begins = ledger->timeline().size();
    std::size_t head_ends = head_begins;
    if (y.requires_grad()) {
      y.register_hook([&](const Tensor&) {
        head_ends = ledger->timeline().size();
        return Tensor();
      });
    }
    const Tensor kept = how.output_kept ? y : Tensor();
    for (const ModulePtr& layer : behind) y = tanh(layer->forward(y));
    const Tensor loss = mse_loss(y, target);
    y = Tensor();
    step.values.loss = loss.item();
    backward(loss);
    const auto& events = ledger->timeline();
    for (std::size_t i = 0; i < events.size(); ++i) {
      const std::int64_t live = events[i].live - base;
      step.peak = std::max(step.peak, live);
      if (i >= head_begins && i < head_ends) step.head_peak = std::max(step.head_peak, live);
      // A change of tag alone moves no byte.
      if (events[i].kind != LedgerEvent::Kind::retag) step.live.push_back(live);
    }
  }
  Tensors leaves{x};
  for (const ModulePtr& layer : layers) {
    step.trained += layer->parameters()[0].grad().defined() ? 1 : 0;
    leaves.insert(leaves.end(), layer->parameters().begin(), layer->parameters().end());
  }
  for (const ModulePtr& layer : behind) {
    leaves.insert(leaves.end(), layer->parameters().begin(), layer->parameters().end());
  }
  step.values.gradients = bits_of(gradients_of(leaves));
  return step;
}

}  // namespace rematch::scenarios::last_segment_story
