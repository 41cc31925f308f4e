#include "golden/semantics/testing/situations.h"

#include <typeinfo>

#include "engine/ambient/ambient.h"
#include "engine/ops/activation.h"
#include "engine/testing/values.h"
#include "golden/semantics/testing/error_kinds.h"

namespace rematch::golden {

using nlohmann::json;

Tensor variable(std::initializer_list<double> values) {
  return constant(values).set_requires_grad(true);
}

Tensor constant(std::initializer_list<double> values) {
  return testing::tensor(values, {static_cast<std::int64_t>(values.size())});
}

Tensor ramp(const Shape& shape, bool requires_grad) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    values.push_back((static_cast<double>(5 * i % 13) - 6.5) / 8);
  }
  return Tensor::from(values, shape, DType::float64).set_requires_grad(requires_grad);
}

std::string to_string(Way way) {
  switch (way) {
    case Way::plain:
      return "plain";
    case Way::reentrant:
      return "reentrant";
    case Way::non_reentrant:
      return "non_reentrant";
  }
  return "?";
}

Call::Call(Way way, CheckpointOptions options) : way_(way), options_(std::move(options)) {}

Tensors Call::operator()(const Function& function, const Tensors& inputs,
                         CheckpointOptions options) const {
  if (way_ == Way::plain) return function(inputs);
  options.reentrant = way_ == Way::reentrant;
  return checkpoint(function, inputs, options);
}

Tensor reentrant(const Function& function, const Tensors& inputs, CheckpointOptions options) {
  options.reentrant = true;
  return checkpoint(function, inputs, options)[0];
}

Tensor non_reentrant(const Function& function, const Tensors& inputs,
                     const CheckpointOptions& options) {
  return checkpoint(function, inputs, options)[0];
}

Function of_one(Unary f) {
  return [f = std::move(f)](const Tensors& in) -> Tensors { return {f(in[0])}; };
}

Function counted(int& runs, Function f) {
  return [&runs, f = std::move(f)](const Tensors& in) {
    ++runs;
    return f(in);
  };
}

Function counted_one(int& runs, Unary f) { return counted(runs, of_one(std::move(f))); }

CheckpointOptions without_early_stop() {
  CheckpointOptions options;
  options.early_stop = false;
  return options;
}

Tensor tanh_twice(const Tensor& x) { return tanh(tanh(x)); }

int alive(const Storages& storages) {
  int count = 0;
  for (const auto& storage : storages) count += !storage.expired();
  return count;
}

HookCounter::HookCounter()
    : hooks_(
          [this](const Tensor& t) {
            ++packs;
            return t;
          },
          [this](const Tensor& t) {
            ++unpacks;
            return t;
          }),
      scope_(&hooks_) {}

std::string category(const std::exception& error) {
  const std::string text = error.what();
  const std::string type = typeid(error) == typeid(CheckpointError)         ? "CheckpointError"
                           : typeid(error) == typeid(std::invalid_argument) ? "invalid_argument"
                           : typeid(error) == typeid(std::runtime_error)    ? "runtime_error"
                                                                            : "another class";
  for (const ErrorKind& kind : error_kinds()) {
    if (kind.we_say.empty() || text.find(kind.we_say) == std::string::npos) continue;
    if (type != kind.our_class) continue;
    return std::string(kind.category);
  }
  return "unknown " + type + ": " + text;
}

std::string outcome(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return category(error);
  }
  return "no error";
}

std::string judged(const Run& run, const Tensors& reference) {
  Tensors found;
  try {
    found = run();
  } catch (const std::exception& error) {
    return "error: " + category(error);
  }
  bool right = found.size() == reference.size();
  for (std::size_t i = 0; right && i < found.size(); ++i) {
    right = testing::same_bits(found[i], reference[i]);
  }
  return right ? "right" : "silently wrong";
}

json verdicts(const Situation& situation) {
  const auto fresh = [&](Way way, bool accident) {
    ambient().streams = Streams(7);
    return situation(Call(way), accident);
  };
  const Tensors reference = fresh(Way::plain, false);
  json seen;
  for (const Way way : {Way::plain, Way::reentrant, Way::non_reentrant}) {
    const std::string clean = judged([&] { return fresh(way, false); }, reference);
    const std::string verdict = judged([&] { return fresh(way, true); }, reference);
    seen[to_string(way)] = clean == "right" ? verdict : "without the accident, " + clean;
  }
  return seen;
}

json gradient_and_state(const std::function<Tensor(const Call& call)>& gradient) {
  const auto run = [&](Way way) {
    ambient().streams = Streams(7);
    const Tensor found = gradient(Call(way));
    return std::pair(found, random_state());
  };
  const auto plain = run(Way::plain);
  json facts;
  for (const Way way : kVariants) {
    const auto found = run(way);
    facts[to_string(way) + "_gradient_right"] = testing::same_bits(found.first, plain.first);
    facts[to_string(way) + "_random_state_right"] = found.second == plain.second;
  }
  return facts;
}

std::vector<Generator> random_state() { return ambient().streams.states(); }

}  // namespace rematch::golden
