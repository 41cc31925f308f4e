// A change between the forward and the recomputation is noticed, for the ops of this table: another
// argument, another operand, an operand that was written to.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <string>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/error.h"
#include "engine/math/delayed_scaling.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/attention.h"
#include "engine/ops/batch_norm.h"
#include "engine/ops/conv2d.h"
#include "engine/ops/delayed_scaling.h"
#include "engine/ops/dropout.h"
#include "engine/ops/embedding.h"
#include "engine/ops/group_norm.h"
#include "engine/ops/join.h"
#include "engine/ops/kv_cache.h"
#include "engine/ops/layer_norm.h"
#include "engine/ops/linear.h"
#include "engine/ops/loss.h"
#include "engine/ops/moe.h"
#include "engine/ops/noise.h"
#include "engine/ops/pool2d.h"
#include "engine/ops/recurrent.h"
#include "engine/ops/rms_norm.h"
#include "engine/ops/rotary.h"
#include "engine/ops/spectral_norm.h"
#include "engine/ops/stochastic_depth.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;
using Arguments = std::vector<double>;
using In = const Tensors&;
using A = const Arguments&;

struct TableOp {
  std::string name;
  /// The region is given the first and captures the others.
  std::vector<Shape> operands;
  /// Choices for each argument; the forward takes the first.
  std::vector<Arguments> arguments;
  std::function<Tensor(In in, A a)> apply;
  /// The last operand is of integers.
  bool integers = false;
};

std::int64_t whole(double x) { return static_cast<std::int64_t>(x); }
RandomOptions random(double stream, double train) {
  return {.train = train != 0, .stream = static_cast<int>(stream)};
}

/// Tensor of the region itself, after `write`.
template <class Write>
Tensor own(const Tensor& x, const Write& write) {
  Tensor y = scale(x, 2);
  write(y);
  return y;
}

// A cast is no op: of what it reads the version alone is compared (README.md, section 8).
// A state that evaluation reads is an operand. A state that an op moves on (kv_cache,
// delayed_scaling) comes from the forward's log in a recomputation, whatever that one is given.
const std::vector<TableOp> kOps{
    {"relu", {{2, 3}}, {}, [](In in, A) { return relu(in[0]); }},
    {"gelu", {{2, 3}}, {}, [](In in, A) { return gelu(in[0]); }},
    {"silu", {{2, 3}}, {}, [](In in, A) { return silu(in[0]); }},
    {"tanh", {{2, 3}}, {}, [](In in, A) { return tanh(in[0]); }},
    {"sigmoid", {{2, 3}}, {}, [](In in, A) { return sigmoid(in[0]); }},
    {"softmax", {{2, 3}}, {}, [](In in, A) { return softmax(in[0]); }},
    {"leaky_relu", {{2, 3}}, {{0.25, 0.5}}, [](In in, A a) { return leaky_relu(in[0], a[0]); }},
    {"add", {{2, 3}, {2, 3}}, {}, [](In in, A) { return add(in[0], in[1]); }},
    {"mul", {{2, 3}, {2, 3}}, {}, [](In in, A) { return mul(in[0], in[1]); }},
    {"scale", {{2, 3}}, {{2, 3, -2}}, [](In in, A a) { return scale(in[0], a[0]); }},
    {"relu_", {{2, 3}}, {}, [](In in, A) { return own(in[0], [](Tensor& y) { relu_(y); }); }},
    {"add_",
     {{2, 3}, {2, 3}},
     {},
     [](In in, A) { return own(in[0], [&](Tensor& y) { add_(y, in[1]); }); }},
    {"scale_",
     {{2, 3}},
     {{2, 3, -2}},
     [](In in, A a) { return own(in[0], [&](Tensor& y) { scale_(y, a[0]); }); }},
    {"reshape",
     {{2, 3}},
     {{6, 3, 1}},
     [](In in, A a) {
       return sum(reshape(in[0], {6 / whole(a[0]), whole(a[0])}));
     }},
    {"hooked", {{2, 3}}, {{2, 3, -2}}, [](In in, A a) { return hooked(in[0], a[0]); }},
    {"sum", {{2, 3}}, {}, [](In in, A) { return sum(in[0]); }},
    {"concat",
     {{2, 2}, {2, 2}},
     {{1, 0}},
     [](In in, A a) { return sum(concat(in[0], in[1], static_cast<int>(a[0]))); }},
    {"split",
     {{4, 4}},
     {{1, 2, 3}, {1, 0}},
     [](In in, A a) { return sum(split(in[0], whole(a[0]), static_cast<int>(a[1]))[0]); }},
    {"flatten", {{2, 3, 2}}, {}, [](In in, A) { return flatten(in[0]); }},
    {"linear", {{2, 3}, {4, 3}, {4}}, {}, [](In in, A) { return linear(in[0], in[1], in[2]); }},
    {"conv2d",
     {{1, 2, 5, 5}, {2, 2, 2, 2}, {2}},
     {{1, 2}, {0, 1}},
     [](In in, A a) { return sum(conv2d(in[0], in[1], in[2], whole(a[0]), whole(a[1]))); }},
    {"max_pool2d",
     {{1, 1, 6, 6}},
     {{3, 2}, {2, 1}, {1, 0}},
     [](In in, A a) { return sum(max_pool2d(in[0], whole(a[0]), whole(a[1]), whole(a[2]))); }},
    {"avg_pool2d",
     {{1, 1, 6, 6}},
     {{3, 2}, {2, 1}, {1, 0}},
     [](In in, A a) { return sum(avg_pool2d(in[0], whole(a[0]), whole(a[1]), whole(a[2]))); }},
    {"layer_norm",
     {{2, 3}, {3}, {3}},
     {{1e-5, 1e-6}},
     [](In in, A a) { return layer_norm(in[0], in[1], in[2], a[0]); }},
    {"rms_norm",
     {{2, 3}, {3}},
     {{1e-5, 1e-6}},
     [](In in, A a) { return rms_norm(in[0], in[1], a[0]); }},
    {"group_norm",
     {{2, 4}, {4}, {4}},
     {{2, 1, 4}, {1e-5, 1e-6}},
     [](In in, A a) { return group_norm(in[0], whole(a[0]), in[1], in[2], a[1]); }},
    {"batch_norm",
     {{3, 2}, {2}, {2}},
     {{1, 0}, {0.125, 0.25}, {1e-5, 1e-6}},
     [](In in, A a) {
       Tensor mean = Tensor::zeros({2}, DType::float64);
       Tensor var = Tensor::ones({2}, DType::float64);
       return batch_norm(in[0], in[1], in[2], mean, var,
                         {.train = a[0] != 0, .momentum = a[1], .eps = a[2]});
     }},
    {"batch_norm in evaluation",
     {{3, 2}, {2}, {2}, {2}, {2}},
     {{1e-5, 1e-6}},
     [](In in, A a) {
       Tensor mean = in[3];
       Tensor var = in[4];
       return batch_norm(in[0], in[1], in[2], mean, var, {.train = false, .eps = a[0]});
     }},
    {"embedding", {{4, 3}, {1, 3}}, {}, [](In in, A) { return embedding(in[1], in[0]); }, true},
    {"rotary",
     {{1, 3, 8}},
     {{8, 4}, {2, 1}},
     [](In in, A a) { return rotary(in[0], whole(a[0]), whole(a[1])); }},
    {"attention",
     {{1, 2, 4}, {1, 3, 8}},
     {{2, 1}, {0, 1}, {0, 1}, {0.25, 0.5}, {0, 1}, {1, 0}},
     [](In in, A a) {
       return attention(in[0], in[1],
                        {.heads = whole(a[0]),
                         .causal = a[1] != 0,
                         .fused = a[2] != 0,
                         .p = a[3],
                         .random = random(a[4], a[5])});
     }},
    {"moe",
     {{2, 3}, {3, 3}, {3, 3, 3}},
     {{1, 2}, {0.25, 0.5}, {0, 1}, {1, 0}},
     [](In in, A a) {
       Tensor load = Tensor::zeros({3}, DType::float64);
       return moe(in[0], in[1], in[2], load,
                  {.top = whole(a[0]), .jitter = a[1], .random = random(a[2], a[3])});
     }},
    {"gru",
     {{1, 2, 3}, {6, 3}, {6, 2}, {6}, {6}},
     {},
     [](In in, A) {
       return gru(in[0], {in[1], in[2], in[3], in[4]});
     }},
    {"lstm",
     {{1, 2, 3}, {8, 3}, {8, 2}, {8}, {8}},
     {},
     [](In in, A) {
       return lstm(in[0], {in[1], in[2], in[3], in[4]});
     }},
    {"dropout",
     {{2, 3}},
     {{0.25, 0.5}, {0, 1}, {1, 0}},
     [](In in, A a) { return dropout(in[0], a[0], random(a[1], a[2])); }},
    {"rrelu",
     {{2, 3}},
     {{0.125, 0.25}, {0.5, 0.75}, {0, 1}, {1, 0}},
     [](In in, A a) { return rrelu(in[0], a[0], a[1], random(a[2], a[3])); }},
    {"gaussian_noise",
     {{2, 3}},
     {{1, 2}, {0, 1}, {1, 0}},
     [](In in, A a) { return gaussian_noise(in[0], a[0], random(a[1], a[2])); }},
    {"stochastic_depth",
     {{2, 3}, {3, 3}},
     {{0.25, 0.5}, {0, 1}, {1, 0}},
     [](In in, A a) { return stochastic_depth(in[0], in[1], a[0], random(a[1], a[2])); }},
    {"early_exit", {{2, 3}, {3, 3}}, {}, [](In in, A) { return early_exit(in[0], in[1]); }},
    {"spectral_norm",
     {{2, 3}, {4, 3}, {4}},
     {{1, 0}},
     [](In in, A a) {
       Tensor u = Tensor::full({4}, DType::float64, 0.5);
       Tensor v = Tensor::full({3}, DType::float64, 0.5);
       return spectral_norm(in[0], in[1], in[2], u, v, a[0] != 0);
     }},
    {"spectral_norm in evaluation",
     {{2, 3}, {4, 3}, {4}, {4}, {3}},
     {},
     [](In in, A) {
       Tensor u = in[3];
       Tensor v = in[4];
       return spectral_norm(in[0], in[1], in[2], u, v, false);
     }},
    {"kv_cache",
     {{1, 2, 3}},
     {{0, 1}},
     [](In in, A a) {
       Tensor cache = Tensor::ones({2, 3}, DType::float64);
       return kv_cache(in[0], cache, a[0] != 0);
     }},
    {"delayed_scaling",
     {{2, 3}},
     {{0, 1}},
     [](In in, A a) {
       Tensor scale = Tensor::ones({1}, DType::float64);
       return delayed_scaling(in[0], scale, a[0] != 0);
     }},
    {"delayed_float8",
     {{2, 3}},
     {{0, 1}},
     [](In in, A a) {
       Tensor history = Tensor::ones({math::kFloat8History}, DType::float64);
       return delayed_float8(in[0], history, a[0] != 0);
     }},
    {"mse_loss", {{2, 3}, {2, 3}}, {}, [](In in, A) { return mse_loss(in[0], in[1]); }},
    {"cross_entropy",
     {{2, 3}, {2}},
     {},
     [](In in, A) { return cross_entropy(in[0], in[1]); },
     true},
};

/// A region of one op, whose arguments and operands can be changed before it is recomputed.
struct Trial {
  const TableOp& op;
  CheckpointOptions options;
  Tensors captured;
  Arguments arguments;
  Tensor x;
  Tensor loss;
  bool takes_input = true;

  Trial(const TableOp& o, bool reentrant) : op(o), options{.reentrant = reentrant} {
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      const bool whole = op.integers && i + 1 == op.operands.size();
      captured.push_back(whole ? Tensor::ones(op.operands[i], DType::int32)
                               : values_off_zero(op.operands[i], i));
    }
    for (const Arguments& choices : op.arguments) arguments.push_back(choices[0]);
    x = values_off_zero(op.operands[0], 0).set_requires_grad(true);
    const Function f = [this](const Tensors& in) -> Tensors {
      Tensors operands = captured;
      if (takes_input) operands[0] = in[0];
      // Something is saved behind the op, whichever it is.
      return {tanh(op.apply(operands, arguments))};
    };
    loss = sum(checkpoint(f, {x}, options)[0]);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
};

}  // namespace

TEST_CASE_METHOD(LedgerScope,
                 "another argument or operand of an op is noticed by a recomputation") {
  ambient().streams.add("another");
  const bool reentrant = GENERATE(false, true);
  for (const TableOp& op : kOps) {
    CAPTURE(op.name, reentrant);
    CHECK_NOTHROW(backward(Trial(op, reentrant).loss));
    for (std::size_t i = 0; i < op.arguments.size(); ++i) {
      for (std::size_t k = 1; k < op.arguments[i].size(); ++k) {
        CAPTURE(i, k);
        Trial trial(op, reentrant);
        trial.arguments[i] = op.arguments[i][k];
        CHECK_THROWS_AS(backward(trial.loss), CheckpointError);
      }
    }
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      CAPTURE("operand", i);
      Trial replaced(op, reentrant);
      if (i == 0) replaced.takes_input = false;
      replaced.captured[i] = replaced.captured[i].clone();
      CHECK_THROWS_AS(backward(replaced.loss), CheckpointError);
      if (i == 0) continue;
      Trial written(op, reentrant);
      written.captured[i].storage()->bump_version();
      CHECK_THROWS_AS(backward(written.loss), CheckpointError);
    }
  }
}

}  // namespace rematch
