#include "scenarios/support/counting.h"

namespace rematch::scenarios {

std::vector<Function> counting(std::span<const Function> functions, RunCount& count) {
  count.runs.assign(functions.size(), 0);
  count.order.clear();
  std::vector<Function> result;
  result.reserve(functions.size());
  for (std::size_t i = 0; i < functions.size(); ++i) {
    result.emplace_back([f = functions[i], i, &count](const Tensors& inputs) {
      ++count.runs[i];
      count.order.push_back(static_cast<int>(i));
      return f(inputs);
    });
  }
  return result;
}

}  // namespace rematch::scenarios
