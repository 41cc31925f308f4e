#include "engine/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <typeinfo>

#include "engine/ambient/ranges.h"

namespace rematch::nn {
namespace {

/// Appends `t` unless it is there already: tied layers hold the same parameter.
bool append_new(Tensors& all, const Tensor& t) {
  const auto same = [&](const Tensor& other) { return is_same(t, other); };
  if (std::any_of(all.begin(), all.end(), same)) return false;
  all.push_back(t);
  return true;
}

/// "3 Linear": the forward of a sequence's layer, at first or again.
class LayerRange {
 public:
  LayerRange(std::size_t place, const Module& layer)
      : range_([&] { return std::to_string(place) + " " + kind_of(layer); }) {}

 private:
  /// The name of the layer's class, without its namespaces.
  static std::string kind_of(const Module& layer) {
    const char* const symbol = typeid(layer).name();
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> name(
        abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
    const std::string text = status == 0 ? name.get() : symbol;
    const std::size_t last = text.rfind("::");
    return last == std::string::npos ? text : text.substr(last + 2);
  }

  Range range_;
};

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
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    const LayerRange range(i, *modules_[i]);
    value = modules_[i]->forward(value);
  }
  return value;
}

void Sequential::set_training(bool on) {
  training_ = on;
  for (const auto& m : modules_) m->set_training(on);
}

std::vector<Function> Sequential::functions() {
  std::vector<Function> result;
  result.reserve(modules_.size());
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    result.emplace_back([i, m = modules_[i].get(),
                         call = modules_[i]->function()](const Tensors& inputs) -> Tensors {
      const LayerRange range(i, *m);
      return call(inputs);
    });
  }
  return result;
}

}  // namespace rematch::nn
