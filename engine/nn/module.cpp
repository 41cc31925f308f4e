#include "engine/nn/module.h"

namespace rematch::nn {

Function Module::function() {
  return [this](const Tensors& inputs) -> Tensors { return {forward(inputs.at(0))}; };
}

Sequential::Sequential(std::vector<std::shared_ptr<Module>> modules)
    : modules_(std::move(modules)) {
  for (const auto& m : modules_) {
    parameters_.insert(parameters_.end(), m->parameters().begin(), m->parameters().end());
    buffers_.insert(buffers_.end(), m->buffers().begin(), m->buffers().end());
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
