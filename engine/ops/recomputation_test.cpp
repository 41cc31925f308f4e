// Ops save what they should, and give the same bits in a checkpoint.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <vector>

#include "engine/autograd/saved_tensor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/cast.h"
#include "engine/ops/group_norm.h"
#include "engine/ops/rms_norm.h"
#include "engine/testing/computed_ops.h"
#include "engine/testing/differentiate.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::same_bits;
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

/// The output and all gradients of a step, and how many ops it computed.
struct Step {
  Tensors tensors;
  std::int64_t computed = 0;
};

Step step(const Op& op, const Tensors& in, const CheckpointOptions* options) {
  // The op's operand is made inside, so that it has to be made again.
  const Function f = [&op](const Tensors& given) -> Tensors {
    Tensors scaled;
    for (const Tensor& t : given) scaled.push_back(scale(t, 2));
    return {op.run(scaled)};
  };
  const testing::ComputedOps computed;
  const Tensor y = options != nullptr ? checkpoint(f, in, *options)[0] : f(in)[0];
  testing::differentiate(y);
  Step result{{y.detach()}, computed.count};
  for (const Tensor& t : in) result.tensors.push_back(t.grad());
  return result;
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "an op saves what its contract says, in that order") {
  for (const Op& op : ops()) {
    const std::uint32_t choices = std::uint32_t{1} << op.operands.size();
    for (std::uint32_t choice = 0; choice < choices; ++choice) {
      CAPTURE(op.name, choice);
      std::vector<Shape> seen;
      FunctionHooks hooks(
          [&](const Tensor& t) {
            seen.push_back(t.shape());
            return t;
          },
          [](const Tensor& t) { return t; });
      const Tensors in = leaves(op, DType::float64, choice);
      const HookScope scope(&hooks);
      const Tensor y = op.run(in);
      CHECK(y.shape() == op.operands[0]);
      CHECK(seen == (choice == 0 ? std::vector<Shape>() : saved_shapes(op, (choice & 1U) != 0)));
    }
  }
}

TEST_CASE_METHOD(LedgerScope, "an op in a checkpoint gives the bits of the plain op") {
  const DType dtype = GENERATE(DType::float32, DType::float64, DType::bfloat16);
  const bool reentrant = GENERATE(false, true);
  const CheckpointOptions options{.reentrant = reentrant, .determinism = DeterminismCheck::values};
  for (const Op& op : ops()) {
    const std::uint32_t choices = std::uint32_t{1} << op.operands.size();
    for (std::uint32_t choice = 1; choice < choices; ++choice) {
      CAPTURE(op.name, to_string(op.operands[0]), to_string(dtype), reentrant, choice);
      const Step plain = step(op, leaves(op, dtype, choice), nullptr);
      const Step again = step(op, leaves(op, dtype, choice), &options);
      CHECK(again.computed == 2 * plain.computed);
      for (std::size_t i = 0; i < plain.tensors.size(); ++i) {
        CAPTURE(i);
        CHECK(same_bits(again.tensors[i], plain.tensors[i]));
      }
    }
  }
}

}  // namespace rematch
