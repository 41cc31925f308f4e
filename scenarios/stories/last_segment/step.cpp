#include "scenarios/stories/last_segment/step.h"

#include <algorithm>
#include <memory>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/nn/layers.h"
#include "engine/ops/activation.h"
#include "engine/ops/dropout.h"
#include "engine/ops/loss.h"

namespace rematch::scenarios::sequential {
namespace {

using Layers = std::vector<std::shared_ptr<nn::Linear>>;

Layers make_layers(int count, std::int64_t width, Generator& generator) {
  Layers layers;
  for (int i = 0; i < count; ++i) {
    layers.push_back(std::make_shared<nn::Linear>(width, width, true, DType::float32, &generator));
  }
  return layers;
}

Tensor made_input(const Net& net, Generator& generator) {
  Tensor t = Tensor::empty({net.rows, net.width}, DType::float32, Tag::inputs);
  nn::fill_uniform(t, 1, generator);
  return t;
}

void append_bits(std::vector<std::byte>& bits, const Tensor& t) {
  if (!t.defined()) return;
  bits.insert(bits.end(), t.raw(), t.raw() + t.bytes());
}

/// The functions of the net; each leaves a weak pointer to what it returned in its first run.
std::vector<Function> functions_of(const Net& net, const Layers& layers,
                                   std::vector<std::weak_ptr<Storage>>& outputs) {
  std::vector<Function> functions;
  outputs.resize(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    functions.emplace_back([layer = layers[i], &net, &output = outputs[i]](const Tensors& in) {
      Tensor y = tanh(layer->forward(in[0]));
      if (net.dropout > 0) y = dropout(y, net.dropout);
      if (!ambient().recomputing) output = y.storage();
      return Tensors{y};
    });
  }
  return functions;
}

Tensor sequential_part(std::span<const Function> functions, const How& how, const Tensor& x) {
  CheckpointOptions options;
  options.reentrant = how.reentrant;
  Tensors values{x};
  if (how.segments == 0) {
    for (const Function& f : functions) values = f(values);
  } else if (how.excluded) {
    const std::size_t size = functions.size() / static_cast<std::size_t>(how.segments);
    const std::size_t given = size * static_cast<std::size_t>(how.segments - 1);
    values = checkpoint_sequential(functions.first(given), how.segments - 1, values,
                                   LastSegment::checkpointed, options);
    for (const Function& f : functions.subspan(given)) values = f(values);
  } else {
    values = checkpoint_sequential(functions, how.segments, values, how.last, options);
  }
  return values[0];
}

}  // namespace

Step run(const Net& net, const Head& head, const How& how) {
  Step step;
  const auto ledger = std::make_shared<Ledger>();
  const AmbientScope scope(ledger, 1);
  Generator generator{1, 0, 0};
  const Layers layers = make_layers(net.layers, net.width, generator);
  Layers behind = make_layers(head.layers, net.width, generator);
  if (head.wide > 0) {
    behind.push_back(
        std::make_shared<nn::Linear>(net.width, head.wide, true, DType::float32, &generator));
    behind.push_back(
        std::make_shared<nn::Linear>(head.wide, net.width, true, DType::float32, &generator));
  }
  Tensor x = made_input(net, generator).set_requires_grad(net.input_requires_grad);
  const Tensor target = made_input(net, generator);
  std::vector<std::weak_ptr<Storage>> outputs;
  std::vector<Function> functions = counting(functions_of(net, layers, outputs), step.count);
  for (int i = 0; i < how.appended; ++i)
    functions.emplace_back([](const Tensors& in) { return in; });

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
    for (const auto& layer : behind) y = tanh(layer->forward(y));
    const Tensor loss = mse_loss(y, target);
    y = Tensor();
    append_bits(step.bits, loss);
    backward(loss);
    const auto& events = ledger->timeline();
    for (std::size_t i = 0; i < events.size(); ++i) {
      const std::int64_t live = events[i].live - base;
      step.peak = std::max(step.peak, live);
      if (i >= head_begins && i < head_ends) step.head_peak = std::max(step.head_peak, live);
    }
    step.events.assign(events.begin(), events.end());
    for (LedgerEvent& event : step.events) event.live -= base;
  }
  append_bits(step.bits, x.grad());
  for (const Layers* some : std::initializer_list<const Layers*>{&layers, &behind}) {
    for (const auto& layer : *some) {
      for (const Tensor& p : layer->parameters()) append_bits(step.bits, p.grad());
    }
  }
  for (const auto& layer : layers) {
    step.trained.push_back(layer->parameters()[0].grad().defined());
  }
  return step;
}

}  // namespace rematch::scenarios::sequential
