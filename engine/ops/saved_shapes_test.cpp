// Ops save what they should.
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <vector>

#include "engine/ops/activation.h"
#include "engine/ops/group_norm.h"
#include "engine/ops/rms_norm.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/saved_shapes.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::SavedShapes;
using testing::values_off_zero;

struct Op {
  const char* name;
  std::function<Tensor(const Tensors&)> run;
  /// x, and its parameters.
  std::vector<Shape> operands;
  /// Shapes that it saves for itself beside x and its weight: see saved_shapes().
  std::vector<Shape> statistics;
};

std::vector<Op> ops() {
  const auto run_silu = [](const Tensors& in) { return silu(in[0]); };
  const auto run_rms_norm = [](const Tensors& in) { return rms_norm(in[0], in[1]); };
  const auto run_group_norm = [](std::int64_t groups) {
    return [groups](const Tensors& in) { return group_norm(in[0], groups, in[1], in[2]); };
  };
  return {
      {"silu", run_silu, {{}}, {}},
      {"silu", run_silu, {{37}}, {}},
      {"silu", run_silu, {{3, 5, 1, 7}}, {}},
      {"group_norm", run_group_norm(1), {{3, 5}, {5}, {5}}, {{3}, {3}}},
      {"group_norm", run_group_norm(3), {{2, 9, 3, 5}, {9}, {9}}, {{6}, {6}}},
      {"group_norm", run_group_norm(7), {{1, 7, 2, 1}, {7}, {7}}, {{7}, {7}}},
      {"rms_norm", run_rms_norm, {{37}, {37}}, {{1}}},
      {"rms_norm", run_rms_norm, {{3, 5, 1, 7}, {7}}, {{15}}},
  };
}

/// x, then the statistics, then the weight when x requires grad.
std::vector<Shape> saved_shapes(const Op& op, bool x_requires_grad) {
  std::vector<Shape> shapes{op.operands[0]};
  shapes.insert(shapes.end(), op.statistics.begin(), op.statistics.end());
  if (x_requires_grad && op.operands.size() > 1) shapes.push_back(op.operands[1]);
  return shapes;
}

/// `choice` has a bit for each operand that requires grad.
Tensors leaves(const Op& op, DType dtype, std::uint32_t choice) {
  Tensors result;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    result.push_back(
        values_off_zero(op.operands[i], i, dtype).set_requires_grad((choice >> i & 1U) != 0));
  }
  return result;
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "an op saves what its contract says, in that order") {
  for (const Op& op : ops()) {
    const std::uint32_t choices = std::uint32_t{1} << op.operands.size();
    for (std::uint32_t choice = 0; choice < choices; ++choice) {
      CAPTURE(op.name, choice);
      const Tensors in = leaves(op, DType::float64, choice);
      const SavedShapes saved;
      const Tensor y = op.run(in);
      CHECK(y.shape() == op.operands[0]);
      CHECK(saved.seen() ==
            (choice == 0 ? std::vector<Shape>() : saved_shapes(op, (choice & 1U) != 0)));
    }
  }
}

}  // namespace rematch
