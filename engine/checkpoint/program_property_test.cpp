// Random programs of ops that share, view and write values, in nested checkpoints of both variants.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/ops/join.h"
#include "engine/ops/view.h"
#include "engine/testing/check_property.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::values_off_zero;

// All are smooth; those from add_ on write in place.
enum Op { kScale, kTanh, kGelu, kAdd, kMul, kView, kTurn, kHalf, kHook, kDropout, kAdd_, kScale_ };
constexpr std::array kNames{"scale", "tanh", "gelu", "add",     "mul",  "view",
                            "turn",  "half", "hook", "dropout", "add_", "scale_"};

/// An op and its operands, counted back from the newest value, round and round: a program stays one
/// when a step is left out.
using Step = std::array<int, 3>;

struct ProgramSegment {
  std::vector<Step> steps;
  /// Checkpoints around it, outermost first: true is reentrant. None: it runs plain.
  std::vector<bool> levels;
  bool runs_on;  ///< No early stop.
  bool keeps;    ///< By a policy.
};

void showValue(const ProgramSegment& s, std::ostream& os) {
  os << "\nsegment" << (s.runs_on ? " without early stop" : "") << (s.keeps ? " with policy" : "");
  for (const bool reentrant : s.levels) os << (reentrant ? " reentrant" : " non-reentrant");
  for (const auto& [op, a, b] : s.steps) os << "; " << kNames[op] << ' ' << a << ' ' << b;
}

rc::Gen<std::vector<ProgramSegment>> programs() {
  namespace gen = rc::gen;
  const auto step = gen::container<Step>(gen::resize(100, gen::inRange<int>(0, kNames.size())));
  const auto flag = gen::arbitrary<bool>();
  const auto segment = gen::apply(
      [](std::vector<Step> steps, std::vector<bool> levels, bool runs_on, bool keeps) {
        return ProgramSegment{std::move(steps), std::move(levels), runs_on, keeps};
      },
      gen::resize(16, gen::container<std::vector<Step>>(step)),
      gen::resize(3, gen::container<std::vector<bool>>(flag)), flag, flag);
  return gen::resize(4, gen::container<std::vector<ProgramSegment>>(segment));
}

Tensor computed(int op, const Tensor& a, const Tensor& b, int& hooks) {
  if (op == kTanh) return tanh(a);
  if (op == kGelu) return gelu(a);
  if (op == kAdd) return scale(add(a, reshape(b, a.shape())), 0.5);
  if (op == kMul) return mul(a, tanh(reshape(b, a.shape())));
  if (op == kView) return reshape(a, a.shape().rank() == 1 ? Shape{2, 2} : Shape{4});
  if (op == kDropout) return dropout(a, 0.25);
  if (op == kTurn || op == kHalf) {
    const auto [left, right] = split(reshape(a, {1, 4}), 2);
    return concat(op == kTurn ? right : left, left);
  }
  Tensor y = scale(a, -0.75);
  if (op == kHook && y.requires_grad()) {
    y.register_hook([&hooks](const Tensor& gradient) { return ++hooks, gradient.clone(); });
  }
  return y;
}

/// The two newest values. Only results of a scale here, and their views, are written, since
/// a function must not write its inputs.
Tensors interpret(const std::vector<Step>& steps, Tensors values, int& hooks) {
  std::vector<bool> own(values.size());
  for (const Step& s : steps) {
    const auto back = [&](int i) { return values.size() - 1 - std::size_t(i) % values.size(); };
    std::size_t a = back(s[1]);
    const Tensor b = values[back(s[2])];
    const bool writes = s[0] >= kAdd_;
    if (!writes || !own[a]) {
      const int op = writes ? kScale : s[0];
      own.push_back(op == kScale || (op == kView && own[a]));
      values.push_back(computed(op, values[a], b, hooks));
      a = values.size() - 1;
    }
    if (s[0] == kAdd_) add_(values[a], reshape(b, values[a].shape()));
    if (writes) scale_(values[a], 0.5);
  }
  return {values[values.size() - 1], values[values.size() - 2]};
}

struct ProgramOutcome {
  std::string error;
  double loss = 0;
  double slope = 0;
  Tensors gradients;
  std::vector<Generator> streams;
  int hooks = 0;
};

/// Two inputs and two weights, displaced by so much of a direction, and the slope along it.
ProgramOutcome run(const std::vector<ProgramSegment>& program, bool checkpointed, int passes,
                   double displaced) {
  ambient().streams = Streams(7);
  Tensors leaves;
  Tensors directions;
  for (std::uint64_t i = 0; i < 4; ++i) {
    directions.push_back(values_off_zero({4}, 4 + i));
    leaves.push_back(add(values_off_zero({4}, i), scale(directions[i], displaced)));
    leaves[i].set_requires_grad(true);
  }
  ProgramOutcome o;
  Tensors values{leaves[0], leaves[1]};
  for (const ProgramSegment& s : program) {
    Function f = [&](const Tensors& in) {
      return interpret(s.steps, {leaves[2], leaves[3], in[0], in[1]}, o.hooks);
    };
    for (std::size_t i = checkpointed ? s.levels.size() : 0; i-- > 0;) {
      CheckpointOptions options{.reentrant = s.levels[i], .early_stop = !s.runs_on};
      // A kept result must not be written, and serves one pass.
      if (s.keeps && !s.levels[i] && passes == 1) {
        options.policy = [](const OpInstance& op) {
          return op.op != "scale" && op.index % 2 == 0 ? Keep::must_save : Keep::must_recompute;
        };
      }
      f = [inner = f, options](const Tensors& in) { return checkpoint(inner, in, options); };
    }
    values = f(values);
  }
  const Tensor loss = add(sum(mul(tanh(values[0]), values[0])), sum(values[1]));
  o.loss = loss.item();
  try {
    while (passes-- > 0) backward(loss, {.retain_graph = passes > 0});
  } catch (const std::exception& error) {
    o.error = error.what();
  }
  for (std::size_t i = 0; i < 4; ++i) {
    o.gradients.push_back(leaves[i].grad());
    if (leaves[i].grad().defined()) o.slope += sum(mul(leaves[i].grad(), directions[i])).item();
  }
  o.streams = ambient().streams.states();
  return o;
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "random programs have the slope of their loss, checkpointed or not") {
  const auto property = [] {
    const std::vector<ProgramSegment> program = *programs();
    const int passes = *rc::gen::inRange(1, 3);
    const auto slope = [&](double h) {
      return (run(program, false, 0, h).loss - run(program, false, 0, -h).loss) / (2 * h) * passes;
    };
    const double expected = slope(0x1p-16);
    // As far as another quotient agrees.
    const double bound = 4 * std::abs(slope(0x1p-14) - expected) + 1e-8 * (1 + std::abs(expected));
    const ProgramOutcome plain = run(program, false, passes, 0);
    const ProgramOutcome again = run(program, true, passes, 0);
    RC_ASSERT(again.loss == plain.loss);
    RC_ASSERT(again.streams == plain.streams);
    // Refused where what was saved was written; early stop may spare a checkpoint the write.
    RC_ASSERT(again.error.empty() || !plain.error.empty());
    if (again.error.empty()) RC_ASSERT(std::abs(again.slope - expected) <= bound);
    if (!plain.error.empty()) return;
    RC_ASSERT(std::abs(plain.slope - expected) <= bound);
    RC_ASSERT(again.hooks == plain.hooks);
    // A reentrant checkpoint adds gradients in another order.
    for (const ProgramSegment& s : program) {
      if (std::count(s.levels.begin(), s.levels.end(), true) > 0) return;
    }
    for (std::size_t i = 0; i < 4; ++i) {
      RC_ASSERT(testing::same_bits(again.gradients[i], plain.gradients[i]));
    }
  };
  check_property("programs in checkpoints", property, 3000);
}

}  // namespace rematch
