#include "scenarios/stories/memory_trade/mlp.h"

#include <chrono>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/nn/optimizer.h"
#include "engine/ops/activation.h"
#include "engine/ops/loss.h"

namespace rematch::scenarios::trade {
namespace {

constexpr std::uint64_t kSeed = 5;

void append_bits(std::vector<std::byte>& bits, const Tensor& t) {
  bits.insert(bits.end(), t.raw(), t.raw() + t.bytes());
}

}  // namespace

Mlp::Mlp(const Shapes& shapes) {
  Generator generator{kSeed, 0, 0};
  for (int i = 0; i <= shapes.hidden; ++i) {
    const std::int64_t out = i < shapes.hidden ? shapes.width : kClasses;
    layers_.push_back(
        std::make_shared<nn::Linear>(shapes.width, out, true, DType::float32, &generator));
  }
}

std::vector<Function> Mlp::functions() const {
  std::vector<Function> result;
  for (const auto& layer : layers_) {
    if (!result.empty()) {
      result.emplace_back([](const Tensors& in) -> Tensors { return {relu(in[0])}; });
    }
    result.push_back(layer->function());
  }
  return result;
}

Tensors Mlp::parameters() const {
  Tensors all;
  for (const auto& layer : layers_) {
    all.insert(all.end(), layer->parameters().begin(), layer->parameters().end());
  }
  return all;
}

std::int64_t Mlp::parameter_bytes() const {
  std::int64_t bytes = 0;
  for (const Tensor& p : parameters()) bytes += p.bytes();
  return bytes;
}

const std::vector<Plan>& plans() {
  static const std::vector<Plan> kPlans{{"nothing", {}},
                                        {"layer2, layer3 (the tutorial's)", {{2, 3}, {4, 5}}},
                                        {"layer1 + relu, layer2 + relu", {{0, 2}, {2, 4}}},
                                        {"relu, relu", {{1, 2}, {3, 4}}},
                                        {"all up to layer3 as one", {{0, 4}}},
                                        {"the whole model as one", {{0, 5}}}};
  return kPlans;
}

Plan equal_blocks(int hidden, int blocks) {
  Plan plan{std::to_string(blocks) + " blocks", {}};
  // A hidden layer is a Linear and its relu.
  const auto size = static_cast<std::size_t>(2 * hidden / blocks);
  for (std::size_t i = 0; i < static_cast<std::size_t>(blocks); ++i) {
    plan.regions.push_back({i * size, (i + 1) * size});
  }
  return plan;
}

Tensor forward(const std::vector<Function>& functions, const Plan& plan, const Tensor& x) {
  Tensors values{x};
  std::size_t next = 0;
  const auto plain_until = [&](std::size_t end) {
    for (; next < end; ++next) values = functions[next](values);
  };
  for (const Region& region : plan.regions) {
    plain_until(region.begin);
    const Function part =
        [inside = std::vector<Function>(
             functions.begin() + static_cast<std::ptrdiff_t>(region.begin),
             functions.begin() + static_cast<std::ptrdiff_t>(region.end))](const Tensors& in) {
          Tensors between = in;
          for (const Function& f : inside) between = f(between);
          return between;
        };
    values = checkpoint(part, values);
    next = region.end;
  }
  plain_until(functions.size());
  return values[0];
}

MlpStep train_step(const Shapes& shapes, const Plan& plan, std::optional<std::int64_t> limit) {
  MlpStep step;
  const auto ledger = std::make_shared<Ledger>();
  const AmbientScope scope(ledger);
  const Mlp model(shapes);
  nn::Sgd optimizer(model.parameters(), 0.01);
  Generator data{kSeed, 1, 0};
  Tensor x = Tensor::empty({shapes.batch, shapes.width}, DType::float32, Tag::inputs);
  nn::fill_normal(x, data);
  Tensor target = Tensor::empty({shapes.batch, Mlp::kClasses}, DType::float32, Tag::inputs);
  nn::fill_normal(target, data);
  const std::int64_t before = ledger->live();
  const std::vector<Function> functions = counting(model.functions(), step.count);
  ledger->set_limit(limit);
  const auto begin = std::chrono::steady_clock::now();
  {
    const Tensor output = forward(functions, plan, x);
    step.after_forward = ledger->live() - before;
    const Tensor loss = mse_loss(output, target);
    backward(loss);
    append_bits(step.bits, loss);
  }
  optimizer.step();
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  step.milliseconds = taken.count();
  step.peak = ledger->peak();
  for (const Tensor& p : model.parameters()) append_bits(step.bits, p.grad());
  return step;
}

std::int64_t recomputed_operations(const Shapes& shapes, const Plan& plan) {
  const auto last = static_cast<std::size_t>(2 * shapes.hidden);
  std::int64_t total = 0;
  for (const Region& region : plan.regions) {
    for (std::size_t i = region.begin; i < region.end; ++i) {
      const std::int64_t out = i == last ? Mlp::kClasses : shapes.width;
      total += i % 2 == 0 ? 2 * shapes.batch * shapes.width * out : shapes.batch * shapes.width;
    }
  }
  return total;
}

}  // namespace rematch::scenarios::trade
