// Random programs in which any one op fails for want of memory, in the forward or a recomputation,
// and is tried again: nothing tells them from programs in which none fails.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/backward_group.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/math/delayed_scaling.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/batch_norm.h"
#include "engine/ops/delayed_scaling.h"
#include "engine/ops/dropout.h"
#include "engine/ops/join.h"
#include "engine/ops/kv_cache.h"
#include "engine/ops/linear.h"
#include "engine/ops/noise.h"
#include "engine/ops/spectral_norm.h"
#include "engine/ops/view.h"
#include "engine/testing/check_property.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch::any_failure {
namespace {

using testing::LedgerScope;
using testing::values_off_zero;

// kAbandon runs some ops, perhaps in a checkpoint, whose function throws every time.
enum Op {
  kScale,
  kTanh,
  kMul,
  kTurn,
  kLinear,
  kDropout,
  kRrelu,
  kNoise,
  kBatchNorm,
  kScaling,
  kFloat8,
  kSpectral,
  kCache,
  kAbandon,
};
constexpr std::array kNames{"scale",   "tanh",     "mul",   "turn",       "linear",
                            "dropout", "rrelu",    "noise", "batch_norm", "scaling",
                            "float8",  "spectral", "cache", "abandon"};

/// An op and its operands, counted back from the newest value, round and round.
using Step = std::array<int, 3>;

/// Ops before and after the next level, which lies within a checkpoint of this kind.
struct Level {
  std::vector<Step> before;
  std::vector<Step> after;
  bool reentrant;
  bool runs_on;  ///< No early stop.
  bool keeps;    ///< By a policy.
};
/// Outermost first.
using Nest = std::vector<Level>;

enum class Walk { once, twice, grouped };

struct FailingProgram {
  std::vector<Nest> nests;
  Walk walk;
  bool autocast;
  /// Each value goes its own way, so that backwards from them share no tensor that was saved: a
  /// group of backwards asks for that.
  bool apart = walk == Walk::grouped;
};

void showValue(const std::vector<Step>& steps, std::ostream& os) {
  for (const auto& [op, a, b] : steps) os << "; " << kNames[op] << ' ' << a << ' ' << b;
}

void showValue(const FailingProgram& p, std::ostream& os) {
  os << "walk " << static_cast<int>(p.walk) << (p.autocast ? " in autocast" : "");
  for (const Nest& nest : p.nests) {
    os << "\nnest";
    for (const Level& l : nest) {
      os << "\n  " << (l.reentrant ? "reentrant" : "non-reentrant")
         << (l.runs_on ? " without early stop" : "") << (l.keeps ? " with policy" : "");
      showValue(l.before, os);
      os << "; [inner]";
      showValue(l.after, os);
    }
  }
}

rc::Gen<FailingProgram> programs() {
  namespace gen = rc::gen;
  const auto step = gen::container<Step>(gen::resize(100, gen::inRange<int>(0, kNames.size())));
  const auto steps = gen::resize(4, gen::container<std::vector<Step>>(step));
  const auto flag = gen::arbitrary<bool>();
  const auto level = gen::apply(
      [](std::vector<Step> before, std::vector<Step> after, bool reentrant, bool runs_on,
         bool keeps) {
        return Level{std::move(before), std::move(after), reentrant, runs_on, keeps};
      },
      steps, steps, flag, flag, flag);
  const auto nest = gen::resize(3, gen::container<Nest>(level));
  return gen::apply(
      [](std::vector<Nest> nests, Walk walk, bool autocast) {
        return FailingProgram{std::move(nests), walk, autocast};
      },
      gen::resize(3, gen::container<std::vector<Nest>>(nest)),
      gen::element(Walk::once, Walk::twice, Walk::grouped), flag);
}

/// Where a run fails: in allocation number `allocation` of op number `op`; 0: nowhere.
struct Failure {
  int op = 0;
  int allocation = 0;
};

struct FailingRun {
  std::array<double, 2> loss{};
  Tensors gradients;
  Tensors states;
  std::vector<Generator> streams;
  /// All, apart from those that failed; and of these the forward's.
  int ops = 0;
  int in_forward = 0;
  std::int64_t saved = 0;
  std::int64_t at_rest = 0;
  bool failed = false;
};

class Interpreter {
 public:
  Interpreter(const FailingProgram& program, bool checkpointed, Failure failure)
      : program_(program), checkpointed_(checkpointed), failure_(failure) {
    ambient().streams = Streams(7);
    for (const Shape& shape : {Shape{2, 4}, Shape{2, 4}, Shape{4, 4}, Shape{4}, Shape{4}}) {
      leaves_.push_back(testing::leaf(shape, leaves_.size()));
    }
    for (const Shape& shape : {Shape{1}, Shape{math::kFloat8History}, Shape{4}, Shape{4}, Shape{4},
                               Shape{4}, Shape{1, 4}}) {
      states_.push_back(Tensor::full(shape, DType::float32, 0.5));
    }
  }

  FailingRun run() {
    FailingRun r;
    Tensor one;
    Tensor other;
    {
      const AutocastScope scope(program_.autocast);
      Tensors values{leaves_[0], leaves_[1]};
      for (const Nest& nest : program_.nests) values = descend(nest, 0, values);
      one = sum(values[0]);
      other = sum(mul(tanh(values[1]), values[1]));
    }
    r.in_forward = ops_;
    r.loss = {one.item(), other.item()};
    r.saved = ambient().ledger->live(Tag::saved) - saved_before_;
    walk(std::move(one), std::move(other));
    r.ops = ops_;
    for (const Tensor& leaf : leaves_) r.gradients.push_back(leaf.grad());
    r.states = states_;
    r.streams = ambient().streams.states();
    r.at_rest = ambient().ledger->live() - live_before_;
    r.failed = failed_;
    return r;
  }

 private:
  void walk(Tensor one, Tensor other) const {
    const Tensor ones = Tensor::ones({}, DType::float32);
    if (program_.walk == Walk::once) {
      return backward(Tensors{std::move(one), std::move(other)}, Tensors{ones, ones});
    }
    std::optional<BackwardGroup> group;
    if (program_.walk == Walk::grouped) group.emplace();
    if (one.requires_grad()) backward(one, {.retain_graph = true});
    backward(other);
  }

  Tensors descend(const Nest& nest, std::size_t depth, const Tensors& in) {
    if (depth == nest.size()) return in;
    const Level& level = nest[depth];
    const Function f = [this, &nest, depth](const Tensors& values) {
      const Level& l = nest[depth];
      return advance(l.after, descend(nest, depth + 1, advance(l.before, values)));
    };
    if (!checkpointed_) return f(in);
    // One that is reentrant saves its inputs for all of its outputs.
    const bool reentrant = level.reentrant && !program_.apart;
    CheckpointOptions options{.reentrant = reentrant, .early_stop = !level.runs_on};
    // Kept results serve one recomputation.
    if (level.keeps && !reentrant && program_.walk != Walk::twice) {
      options.policy = [](const OpInstance& op) {
        return op.index % 2 == 0 ? Keep::must_save : Keep::must_recompute;
      };
    }
    return checkpoint(f, in, options);
  }

  Tensors advance(const std::vector<Step>& steps, const Tensors& values) {
    if (!program_.apart) return interpret(steps, values);
    return {interpret(steps, {values[0], values[0]})[0],
            interpret(steps, {values[1], values[1]})[0]};
  }

  Tensors interpret(const std::vector<Step>& steps, Tensors values) {
    for (const Step& s : steps) {
      const auto back = [&](int i) {
        return values[values.size() - 1 - std::size_t(i) % values.size()];
      };
      if (s[0] == kAbandon) {
        abandon(back(s[1]), s[2]);
      } else {
        values.push_back(computed(s[0], back(s[1]), back(s[2])));
      }
    }
    return {values[values.size() - 1], values[values.size() - 2]};
  }

  /// Runs an op, and again where it is the one that fails.
  template <class Run>
  auto attempt(const Run& run) {
    if (++ops_ != failure_.op) return run();
    Ledger& ledger = *ambient().ledger;
    ledger.fail_allocation(failure_.allocation);
    struct Disarm {
      Ledger& ledger;
      ~Disarm() { ledger.fail_allocation(0); }
    } disarm{ledger};
    try {
      return run();
    } catch (const OutOfMemory&) {
      failed_ = true;
      return run();
    }
  }

  void abandon(const Tensor& a, int how) {
    const Function f = [&](const Tensors& in) -> Tensors {
      Tensor y = in[0];
      for (int i = 0; i <= how % 3; ++i) y = computed(i == 1 ? kScaling : kDropout, y, y);
      throw std::domain_error("mine");
    };
    try {
      if (checkpointed_ && how % 2 == 0) checkpoint(f, {a}, {.reentrant = how % 4 == 0});
      f({a});
    } catch (const std::domain_error&) {
      return;
    }
  }

  /// Values have 4 columns.
  Tensor computed(int op, const Tensor& a, const Tensor& b) {
    switch (op) {
      case kTanh:
        return attempt([&] { return tanh(a); });
      case kMul:
        return attempt([&] { return mul(a, a.shape() == b.shape() ? b : a); });
      case kTurn: {
        const auto halves = attempt([&] { return split(a, 2); });
        return attempt([&] { return concat(halves[1], halves[0]); });
      }
      case kLinear:
        return attempt([&] { return linear(a, leaves_[2]); });
      case kDropout:
        return attempt([&] { return dropout(a, 0.25); });
      case kRrelu:
        return attempt([&] { return rrelu(a); });
      case kNoise:
        return attempt([&] { return gaussian_noise(a, 0.5); });
      case kBatchNorm:
        return attempt(
            [&] { return batch_norm(a, leaves_[3], leaves_[4], states_[2], states_[3]); });
      case kScaling:
        return attempt([&] { return delayed_scaling(a, states_[0], true); });
      case kFloat8:
        return attempt([&] { return delayed_float8(a, states_[1], true); });
      case kSpectral:
        return attempt(
            [&] { return spectral_norm(a, leaves_[2], {}, states_[4], states_[5], true); });
      case kCache: {
        const Tensor sequence = reshape(a, {1, a.shape()[0], 4});
        const Tensor y = attempt([&] { return kv_cache(sequence, states_[6], true); });
        return reshape(y, {y.shape()[1], 4});
      }
      default:
        return attempt([&] { return scale(a, 0.75); });
    }
  }

  const FailingProgram& program_;
  bool checkpointed_;
  Failure failure_;
  std::int64_t live_before_ = ambient().ledger->live();
  std::int64_t saved_before_ = ambient().ledger->live(Tag::saved);
  Tensors leaves_;
  Tensors states_;
  int ops_ = 0;
  bool failed_ = false;
};

FailingRun run(const FailingProgram& program, bool checkpointed, Failure failure = {}) {
  return Interpreter(program, checkpointed, failure).run();
}

bool same_tensors(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) {
    return x.defined() == y.defined() && (!x.defined() || testing::same_bits(x, y));
  });
}

}  // namespace

TEST_CASE_METHOD(LedgerScope,
                 "an op that fails anywhere in a program, and is tried again, leaves no trace") {
  const auto property = [] {
    const FailingProgram program = *programs();
    const FailingRun plain = run(program, false);
    const FailingRun expected = run(program, true);
    const auto same_outcome = [](const FailingRun& a, const FailingRun& b) {
      RC_ASSERT(a.loss == b.loss);
      RC_ASSERT(a.streams == b.streams);
      RC_ASSERT(same_tensors(a.states, b.states));
      RC_ASSERT(a.in_forward == b.in_forward);
    };
    same_outcome(expected, plain);
    if (program.walk == Walk::grouped) {
      FailingProgram at_once = program;
      at_once.walk = Walk::once;
      RC_ASSERT(run(at_once, true).ops == expected.ops);
    }
    for (int op = 1; op <= expected.ops; ++op) {
      for (int allocation = 1;; ++allocation) {
        const FailingRun got = run(program, true, {op, allocation});
        if (!got.failed) break;
        RC_LOG() << "op " << op << ", allocation " << allocation << " of it";
        same_outcome(got, plain);
        RC_ASSERT(same_tensors(got.gradients, expected.gradients));
        RC_ASSERT(got.ops == expected.ops);
        RC_ASSERT(got.saved == expected.saved);
        RC_ASSERT(got.at_rest == expected.at_rest);
        if (op > plain.in_forward) continue;
        const FailingRun failed = run(program, false, {op, allocation});
        same_outcome(failed, plain);
        RC_ASSERT(same_tensors(failed.gradients, plain.gradients));
      }
    }
    // A reentrant checkpoint adds gradients in another order.
    for (const Nest& nest : program.nests) {
      if (std::any_of(nest.begin(), nest.end(), [](const Level& l) { return l.reentrant; })) return;
    }
    RC_ASSERT(same_tensors(expected.gradients, plain.gradients));
  };
  check_property("programs that fail anywhere", property, 200);
}

}  // namespace rematch::any_failure
