#include "bench/steps/plans.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rematch::bench {
namespace {

int root_of(std::size_t layers) {
  return std::max(1, static_cast<int>(std::lround(std::sqrt(static_cast<double>(layers)))));
}

CheckpointOptions options_of(const Plan& plan) {
  CheckpointOptions options;
  options.reentrant = plan.reentrant;
  if (plan.keeps_products) {
    options.policy = [](const OpInstance& op) {
      return op.op == "linear" || op.op == "conv2d" ? Keep::must_save : Keep::prefer_recompute;
    };
  }
  return options;
}

/// Two halves, each a region whose layers are cut once more.
Tensor run_nested(const Plan& plan, std::span<const Function> functions, Tensor value) {
  const CheckpointOptions options = options_of(plan);
  const std::size_t middle = (functions.size() + 1) / 2;
  for (const auto part : {functions.first(middle), functions.subspan(middle)}) {
    if (part.empty()) continue;
    const std::vector<Function> half(part.begin(), part.end());
    const int segments = std::min(root_of(half.size()), static_cast<int>(half.size()));
    value = checkpoint(
        [=](const Tensors& in) {
          return checkpoint_sequential(half, segments, in, LastSegment::checkpointed, options);
        },
        {value}, options)[0];
  }
  return value;
}

}  // namespace

std::span<const Plan> plans() {
  using enum Plan::Cut;
  static constexpr std::array kPlans{
      Plan{"plain", plain},
      Plan{"k2", two},
      Plan{"k4", four},
      Plan{"sqrt", root},
      Plan{"sqrt-reentrant", root, true},
      Plan{"sqrt-last", root, false, LastSegment::checkpointed},
      Plan{"sqrt-keep", root, false, LastSegment::stored, true},
      Plan{"every", every},
      Plan{"every-reentrant", every, true},
      Plan{"nested", nested},
      Plan{"nested-reentrant", nested, true},
      Plan{"offload", plain, false, LastSegment::stored, false, true},
      Plan{"sqrt-offload", root, false, LastSegment::checkpointed, false, true},
  };
  return kPlans;
}

Tensor run(const Plan& plan, std::span<const Function> functions, const Tensor& input) {
  const int layers = static_cast<int>(functions.size());
  int segments = 1;
  switch (plan.cut) {
    case Plan::Cut::plain: {
      Tensors value{input};
      for (const Function& f : functions) value = f(value);
      return value[0];
    }
    case Plan::Cut::two:
      segments = 2;
      break;
    case Plan::Cut::four:
      segments = 4;
      break;
    case Plan::Cut::root:
      segments = root_of(functions.size());
      break;
    case Plan::Cut::every:
      segments = layers;
      break;
    case Plan::Cut::nested:
      return run_nested(plan, functions, input);
  }
  return checkpoint_sequential(functions, std::min(segments, layers), {input}, plan.last,
                               options_of(plan))[0];
}

}  // namespace rematch::bench
