#include "golden/numerics/testing/run_entry.h"

#include <functional>
#include <memory>
#include <stdexcept>

#include "engine/autograd/backward.h"
#include "engine/nn/optimizer.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/attention.h"
#include "engine/ops/batch_norm.h"
#include "engine/ops/conv2d.h"
#include "engine/ops/delayed_scaling.h"
#include "engine/ops/embedding.h"
#include "engine/ops/group_norm.h"
#include "engine/ops/join.h"
#include "engine/ops/kv_cache.h"
#include "engine/ops/layer_norm.h"
#include "engine/ops/linear.h"
#include "engine/ops/loss.h"
#include "engine/ops/moe.h"
#include "engine/ops/pool2d.h"
#include "engine/ops/recurrent.h"
#include "engine/ops/rms_norm.h"
#include "engine/ops/rotary.h"
#include "engine/ops/spectral_norm.h"
#include "engine/ops/stochastic_depth.h"
#include "engine/ops/view.h"

namespace rematch::golden {
namespace {

/// Operands by name; one that an entry lacks is undefined.
class Operands {
 public:
  explicit Operands(const Entry& entry) {
    for (const auto& [name, t] : entry.inputs) {
      tensors_[name] = t.clone().set_requires_grad(entry.gradients.count(name) == 1);
    }
  }
  Tensor& operator[](const std::string& name) { return tensors_[name]; }

 private:
  NamedTensors tensors_;
};

RecurrentParameters recurrent_parameters(Operands& in) {
  return {in["weight_ih"], in["weight_hh"], in["bias_ih"], in["bias_hh"]};
}

using Op = std::function<Tensors(const Entry&, Operands&)>;

const std::map<std::string, Op>& ops() {
  const auto unary = [](Tensor (*op)(const Tensor&)) {
    return [op](const Entry&, Operands& in) { return Tensors{op(in["x"])}; };
  };
  const auto binary = [](Tensor (*op)(const Tensor&, const Tensor&)) {
    return [op](const Entry&, Operands& in) { return Tensors{op(in["a"], in["b"])}; };
  };
  const auto loss = [](Tensor (*op)(const Tensor&, const Tensor&)) {
    return [op](const Entry&, Operands& in) { return Tensors{op(in["x"], in["target"])}; };
  };
  const auto pool = [](Tensor (*op)(const Tensor&, std::int64_t, std::int64_t, std::int64_t)) {
    return [op](const Entry& e, Operands& in) {
      return Tensors{op(in["x"], e.integer("kernel"), e.integer("stride"), e.integer("padding"))};
    };
  };
  static const std::map<std::string, Op> table{
      {"embedding",
       [](const Entry&, Operands& in) { return Tensors{embedding(in["tokens"], in["weight"])}; }},
      {"delayed_scaling",
       [](const Entry& e, Operands& in) {
         return Tensors{
             delayed_scaling(in["x"], in["scale"], e.attributes.at("train").get<bool>())};
       }},
      {"delayed_float8",
       [](const Entry& e, Operands& in) {
         return Tensors{
             delayed_float8(in["x"], in["history"], e.attributes.at("train").get<bool>())};
       }},
      {"kv_cache",
       [](const Entry& e, Operands& in) {
         return Tensors{kv_cache(in["x"], in["cache"], e.attributes.at("train").get<bool>())};
       }},
      {"spectral_norm",
       [](const Entry& e, Operands& in) {
         return Tensors{spectral_norm(in["x"], in["weight"], in["bias"], in["u"], in["v"],
                                      e.attributes.at("train").get<bool>())};
       }},
      {"attention",
       [](const Entry& e, Operands& in) {
         const AttentionOptions options{.heads = e.integer("heads"),
                                        .causal = e.attributes.at("causal").get<bool>(),
                                        .fused = e.attributes.at("fused").get<bool>()};
         return Tensors{attention(in["x"], in["memory"], options)};
       }},
      {"rotary",
       [](const Entry& e, Operands& in) {
         return Tensors{rotary(in["x"], e.integer("features"), e.integer("heads"))};
       }},
      {"moe",
       [](const Entry& e, Operands& in) {
         const MoeOptions options{.top = e.integer("top"),
                                  .random = {.train = e.attributes.at("train").get<bool>()}};
         return Tensors{moe(in["x"], in["router"], in["experts"], in["load"], options)};
       }},
      {"stochastic_depth",
       [](const Entry& e, Operands& in) {
         const RandomOptions options{.train = e.attributes.at("train").get<bool>()};
         return Tensors{stochastic_depth(in["x"], in["weight"], e.number("p"), options)};
       }},
      {"early_exit",
       [](const Entry&, Operands& in) { return Tensors{early_exit(in["x"], in["weight"])}; }},
      {"gru",
       [](const Entry&, Operands& in) { return Tensors{gru(in["x"], recurrent_parameters(in))}; }},
      {"lstm",
       [](const Entry&, Operands& in) { return Tensors{lstm(in["x"], recurrent_parameters(in))}; }},
      {"linear", [](const Entry&,
                    Operands& in) { return Tensors{linear(in["x"], in["weight"], in["bias"])}; }},
      {"conv2d",
       [](const Entry& e, Operands& in) {
         return Tensors{
             conv2d(in["x"], in["weight"], in["bias"], e.integer("stride"), e.integer("padding"))};
       }},
      {"max_pool2d", pool(max_pool2d)},
      {"avg_pool2d", pool(avg_pool2d)},
      {"batch_norm",
       [](const Entry& e, Operands& in) {
         const BatchNormOptions options{.train = e.attributes.at("train").get<bool>(),
                                        .momentum = e.number("momentum"),
                                        .eps = e.number("eps")};
         return Tensors{batch_norm(in["x"], in["weight"], in["bias"], in["running_mean"],
                                   in["running_var"], options)};
       }},
      {"layer_norm",
       [](const Entry& e, Operands& in) {
         return Tensors{layer_norm(in["x"], in["weight"], in["bias"], e.number("eps"))};
       }},
      {"group_norm",
       [](const Entry& e, Operands& in) {
         return Tensors{
             group_norm(in["x"], e.integer("groups"), in["weight"], in["bias"], e.number("eps"))};
       }},
      {"rms_norm",
       [](const Entry& e, Operands& in) {
         return Tensors{rms_norm(in["x"], in["weight"], e.number("eps"))};
       }},
      {"relu", unary(relu)},
      {"gelu", unary(gelu)},
      {"silu", unary(silu)},
      {"tanh", unary(rematch::tanh)},
      {"sigmoid", unary(sigmoid)},
      {"softmax", unary(softmax)},
      {"leaky_relu", [](const Entry& e,
                        Operands& in) { return Tensors{leaky_relu(in["x"], e.number("slope"))}; }},
      {"add", binary(add)},
      {"mul", binary(mul)},
      {"scale",
       [](const Entry& e, Operands& in) { return Tensors{scale(in["x"], e.number("factor"))}; }},
      {"hooked",
       [](const Entry& e, Operands& in) { return Tensors{hooked(in["x"], e.number("factor"))}; }},
      {"sum", unary(sum)},
      {"concat", [](const Entry&, Operands& in) { return Tensors{concat(in["a"], in["b"])}; }},
      {"split",
       [](const Entry& e, Operands& in) {
         const auto [first, rest] = split(in["x"], e.integer("first"));
         return Tensors{first, rest};
       }},
      {"flatten", unary(flatten)},
      {"mse_loss", loss(mse_loss)},
      {"cross_entropy", loss(cross_entropy)},
  };
  return table;
}

EntryOutcome run_op(const Entry& entry, const Op& op) {
  Operands operands(entry);
  EntryOutcome result;
  result.outputs = op(entry, operands);
  backward(result.outputs, entry.output_gradients);
  for (const auto& [name, unused] : entry.gradients) {
    result.gradients[name] = operands[name].grad();
  }
  for (const auto& [name, unused] : entry.after) result.after[name] = operands[name];
  return result;
}

EntryOutcome run_optimizer(const Entry& entry) {
  Tensor parameter = entry.inputs.at("parameter").clone().set_requires_grad(true);
  std::unique_ptr<nn::Optimizer> optimizer;
  if (entry.op == "adam") {
    optimizer = std::make_unique<nn::Adam>(Tensors{parameter}, entry.number("lr"));
  } else {
    optimizer =
        std::make_unique<nn::Sgd>(Tensors{parameter}, entry.number("lr"), entry.number("momentum"));
  }
  EntryOutcome result;
  for (std::size_t step = 0; step < entry.after.size(); ++step) {
    const std::string number = std::to_string(step);
    parameter.set_grad(entry.inputs.at("gradient " + number).clone());
    optimizer->step();
    result.after["parameter " + number] = parameter.clone();
  }
  return result;
}

Tensor mlp(Operands& in) {
  Tensor y = gelu(linear(in["x"], in["weight 0"], in["bias 0"]));
  y = layer_norm(y, in["norm weight"], in["norm bias"]);
  return mse_loss(linear(y, in["weight 1"], in["bias 1"]), in["target"]);
}

Tensor cnn(Operands& in) {
  Tensor y = conv2d(in["x"], in["conv weight"], in["conv bias"], 1, 1);
  y = batch_norm(y, in["norm weight"], in["norm bias"], in["running mean"], in["running var"]);
  y = max_pool2d(relu(y), 2, 2);
  return cross_entropy(linear(flatten(y), in["weight"], in["bias"]), in["target"]);
}

EntryOutcome run_model(const Entry& entry, Tensor (*model)(Operands&)) {
  Operands operands(entry);
  Tensors trained;
  for (const auto& [name, unused] : entry.inputs) {
    const bool constant = name == "x" || name == "target" || name.starts_with("running");
    if (!constant) trained.push_back(operands[name].set_requires_grad(true));
  }
  nn::Sgd optimizer(trained, entry.number("lr"), entry.number("momentum"));
  EntryOutcome result;
  for (int step = 0; step < entry.integer("steps"); ++step) {
    optimizer.zero_grad();
    const Tensor loss = model(operands);
    backward(loss);
    optimizer.step();
    result.after["loss " + std::to_string(step)] = loss.detach();
  }
  for (const auto& [name, unused] : entry.inputs) {
    if (entry.after.count(name) == 1) result.after[name] = operands[name];
  }
  return result;
}

}  // namespace

EntryOutcome run_entry(const Entry& entry) {
  if (const auto op = ops().find(entry.op); op != ops().end()) return run_op(entry, op->second);
  if (entry.op == "sgd" || entry.op == "adam") return run_optimizer(entry);
  if (entry.op == "mlp") return run_model(entry, mlp);
  if (entry.op == "cnn") return run_model(entry, cnn);
  throw std::runtime_error("[golden] no op " + entry.op);
}

}  // namespace rematch::golden
