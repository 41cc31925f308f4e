#include "engine/nn/module.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace rematch::nn {
namespace {

/// Appends `t` unless it is there already: tied layers hold the same parameter.
bool append_new(Tensors& all, const Tensor& t) {
  const auto same = [&](const Tensor& other) { return is_same(t, other); };
  if (std::any_of(all.begin(), all.end(), same)) return false;
  all.push_back(t);
  return true;
}

}  // namespace

Function Module::function() {
  return [this](const Tensors& inputs) -> Tensors {
    if (inputs.size() != 1) {
      throw std::invalid_argument("[Module] one input expected, got " +
                                  std::to_string(inputs.size()) +
                                  "; hand it to checkpoint() with the function: "
                                  "checkpoint(layer.function(), {x})");
    }
    return {forward(inputs[0])};
  };
}

Sequential::Sequential(std::vector<std::shared_ptr<Module>> modules)
    : modules_(std::move(modules)) {
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    for (Tensor p : modules_[i]->parameters()) {
      if (!append_new(parameters_, p) || p.name().empty()) continue;
      p.set_name(std::to_string(i) + "." + std::string(p.name()));
    }
    for (const Tensor& b : modules_[i]->buffers()) append_new(buffers_, b);
  }
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor value = x;
  for (const auto& m : modules_) value = m->forward(value);
  return value;
}

void Sequential::set_training(bool on) {
  training_ = on;
  for (const auto& m : modules_) m->set_training(on);
}

std::vector<Function> Sequential::functions() {
  std::vector<Function> result;
  result.reserve(modules_.size());
  for (const auto& m : modules_) result.push_back(m->function());
  return result;
}

}  // namespace rematch::nn
