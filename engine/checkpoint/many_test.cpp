// Regions of many ops, tensors, levels or draws, of no element and of megabytes: each trains as its
// plain run does, in every way to checkpoint it.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/sequential.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/delayed_scaling.h"
#include "engine/ops/dropout.h"
#include "engine/ops/join.h"
#include "engine/ops/linear.h"
#include "engine/ops/noise.h"
#include "engine/ops/view.h"
#include "engine/testing/ambient_snapshot.h"
#include "engine/testing/many_ops.h"
#include "engine/testing/offload_fixture.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::AmbientSnapshot;
using testing::OffloadFixture;
using testing::same_bits;
using testing::tensor;
using testing::values_off_zero;
using testing::variable;

enum class Way {
  plain,
  non_reentrant,
  late_stop,
  reentrant,
  nested,
  policy,
  offloaded,
  sequential,
};

/// Runs functions in one of these ways.
struct Runner {
  Way way;
  Offload& offload;

  Tensors operator()(const Function& f, const Tensors& in) const {
    CheckpointOptions options{.reentrant = way == Way::reentrant,
                              .early_stop = way != Way::late_stop,
                              .determinism = DeterminismCheck::values};
    std::optional<OffloadScope> scope;
    if (way == Way::plain) return f(in);
    if (way == Way::offloaded) scope.emplace(offload);
    if (way == Way::policy) {
      options.policy = [](const OpInstance& op) {
        return op.index % 2 == 0 ? Keep::must_save : Keep::must_recompute;
      };
    }
    if (way == Way::sequential) {
      return checkpoint_sequential(std::vector<Function>{f}, 1, in, LastSegment::checkpointed,
                                   options);
    }
    if (way != Way::nested) return checkpoint(f, in, options);
    return checkpoint([f, options](const Tensors& t) { return checkpoint(f, t, options); }, in,
                      {.reentrant = true});
  }
};

/// Walks back from the outputs, each with its own gradient. Returns outputs and gradients.
Tensors trained(const Tensors& outputs, const Tensors& leaves) {
  Tensors all;
  Tensors roots;
  Tensors gradients;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    all.push_back(outputs[i].detach());
    if (!outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    gradients.push_back(values_off_zero(outputs[i].shape(), 1000 + i, outputs[i].dtype()));
  }
  backward(roots, gradients);
  for (const Tensor& leaf : leaves) all.push_back(leaf.grad());
  return all;
}

/// Trains with n of something. Its results must not depend on the way of the run.
using Program = std::function<Tensors(std::size_t n, const Runner& run)>;

Tensors many_ops(std::size_t n, const Runner& run) {
  const Tensor x = variable({-0.5}, {1});
  return trained(run([n](const Tensors& in) -> Tensors { return {testing::chain(n, in[0])}; }, {x}),
                 {x});
}

/// Output i is the product of inputs i and i + 1; one is of integers. Input n - 1 and every
/// `step`-th requires grad.
template <std::size_t step>
Tensors many_inputs_and_outputs(std::size_t n, const Runner& run) {
  Tensors leaves;
  for (std::size_t i = 0; i < n; ++i) {
    leaves.push_back(values_off_zero({2}, i).set_requires_grad((n - 1 - i) % step == 0));
  }
  const Function products = [n](const Tensors& in) -> Tensors {
    Tensors out;
    for (std::size_t i = 0; i < n; ++i) out.push_back(mul(tanh(in[i]), in[(i + 1) % n]));
    out[n / 3] = Tensor::ones({2}, DType::int32);
    return out;
  };
  return trained(run(products, leaves), leaves);
}

/// States that one region reads and moves on, all of different values.
Tensors many_states(std::size_t n, const Runner& run) {
  const Tensor x = variable({-0.5, 2}, {2});
  Tensors states;
  for (std::size_t i = 0; i < n; ++i) {
    states.push_back(Tensor::full({1}, DType::float64, 1 + static_cast<double>(i) / 1024));
  }
  const Function f = [&](const Tensors& in) -> Tensors {
    Tensor y = in[0];
    for (Tensor& state : states) y = add(y, delayed_scaling(tanh(in[0]), state, true));
    return {y};
  };
  Tensors all = trained(run(f, {x}), {x});
  all.insert(all.end(), states.begin(), states.end());
  return all;
}

Tensors many_results_of_an_op(std::size_t n, const Runner& run) {
  Tensors all;
  testing::with_count(static_cast<int>(n), [&]<std::size_t N>() {
    const Tensor x = variable({-1}, {1});
    const Function f = [](const Tensors& in) -> Tensors {
      const std::array<Tensor, N> y = testing::powers<N>(in[0]);
      return {y.begin(), y.end()};
    };
    all = trained(run(f, {x}), {x});
  });
  return all;
}

Tensors many_operands_of_an_op(std::size_t n, const Runner& run) {
  Tensors leaves;
  for (std::size_t i = 0; i < n; ++i) {
    leaves.push_back(tensor({static_cast<double>(i + 3)}, {1}).set_requires_grad(i % 3 == 1));
  }
  Tensors all;
  testing::with_count(static_cast<int>(n), [&]<std::size_t N>() {
    const Function f = [](const Tensors& in) -> Tensors {
      std::array<Tensor, N> operands;
      std::copy(in.begin(), in.end(), operands.begin());
      return {testing::squares(operands)};
    };
    all = trained(run(f, leaves), leaves);
  });
  return all;
}

/// Draws from streams of which every second is added by the region, at offsets with each bit set.
/// All move between forward and backward.
Tensors many_streams(std::size_t n, const Runner& run) {
  ambient().streams = Streams(7);
  const auto add = [](std::size_t i) {
    return ambient().streams.add("stream " + std::to_string(i));
  };
  for (std::size_t i = 0; i < n; i += 2) {
    ambient().streams.at(add(i)).offset = (std::uint64_t{1} << (2 + i % 62)) - 4;
  }
  const Function draws = [n, add](const Tensors& in) -> Tensors {
    Tensor y = in[0];
    for (std::size_t i = 0; i < n; ++i) y = tanh(rrelu(y, 0.75, 1.25, {.stream = add(i)}));
    return {y};
  };
  const Tensor x = Tensor::full({16}, DType::float64, -0.5).set_requires_grad(true);
  const Tensors y = run(draws, {x});
  for (std::size_t i = 0; i < n; ++i) {
    ambient().streams.at(add(i)).draw(static_cast<std::int64_t>(4 * (i % 3)));
  }
  return trained(y, {x});
}

/// Each level works and draws on the way in and out, with its own weight. The run around each is
/// the one that is tried, or at odd levels the reentrant one.
template <bool alternating>
Tensors many_levels(std::size_t n, const Runner& run) {
  Tensors leaves{variable({-0.5, -0.25}, {2})};
  for (std::size_t i = 0; i <= n; ++i) {
    const double less = static_cast<double>(i) / 1024;
    leaves.push_back(variable({1 + less, 1 - less}, {2}));
  }
  const std::function<Tensor(std::size_t, const Tensor&)> level = [&](std::size_t i,
                                                                      const Tensor& x) -> Tensor {
    const Tensor h = rrelu(tanh(mul(x, leaves[i + 1])), 0.75, 1.25);
    if (i == n) return h;
    const bool switches = alternating && i % 2 == 1 && run.way != Way::plain;
    const Runner inside{switches ? Way::reentrant : run.way, run.offload};
    const Function f = [&level, i](const Tensors& in) -> Tensors { return {level(i + 1, in[0])}; };
    return rrelu(tanh(inside(f, {h})[0]), 0.75, 1.25);
  };
  return trained({level(0, leaves[0])}, leaves);
}

/// Two uses of each of n weights, cast once each.
template <bool backward_inside>
Tensors many_casts(std::size_t n, const Runner& run) {
  Tensors leaves{testing::leaf({1, 2}, 1000)};
  for (std::size_t i = 0; i < n; ++i) leaves.push_back(testing::leaf({2, 2}, i));
  const Function f = [&](const Tensors& in) -> Tensors {
    Tensor y = in[0];
    for (std::size_t i = 0; i < 2 * n; ++i) {
      y = add(y, scale(tanh(linear(y, leaves[1 + i % n])), 1.0 / 64));
    }
    return {y};
  };
  std::optional<AutocastScope> scope(std::in_place);
  const Tensors y = run(f, {leaves[0]});
  CHECK(ambient().autocast.cache->size() == n);
  if (!backward_inside) scope.reset();
  return trained(y, leaves);
}

/// A region that draws, with a second output that nobody walks back from.
Function layer(const Tensor& weight) {
  return [weight](const Tensors& in) -> Tensors {
    return {tanh(mul(dropout(tanh(in[0]), 0.25), weight)), tanh(scale(in[0], 2))};
  };
}

/// n forwards before the first backward, of which each leaps over `stride` forwards.
template <std::size_t stride>
Tensors many_forwards(std::size_t n, const Runner& run) {
  Tensors leaves{values_off_zero({3}, 9).set_requires_grad(true)};
  Tensors losses;
  for (std::size_t i = 0; i < n; ++i) {
    leaves.push_back(values_off_zero({3}, i).set_requires_grad(true));
    losses.push_back(sum(run(layer(leaves[0]), {leaves.back()})[0]));
  }
  for (std::size_t i = 0; i < n; ++i) {
    const AmbientSnapshot before = AmbientSnapshot::now();
    backward(std::exchange(losses[n - 1 - i * stride % n], {}));
    CHECK(AmbientSnapshot::now() == before);
  }
  return trained({}, leaves);
}

Tensors many_backwards(std::size_t n, const Runner& run) {
  const Tensors leaves{values_off_zero({3}, 1).set_requires_grad(true),
                       values_off_zero({3}, 9).set_requires_grad(true)};
  // Results that a policy kept would serve one.
  const Runner several{run.way == Way::policy ? Way::non_reentrant : run.way, run.offload};
  const Tensors y = several(layer(leaves[1]), {leaves[0]});
  const Tensor loss = sum(y[0]);
  // Tensors recomputed for the second output go with each backward.
  const std::int64_t saved = ambient().ledger->live(Tag::saved);
  for (std::size_t i = 0; i < n; ++i) {
    backward(loss, {.retain_graph = true});
    CHECK(ambient().ledger->live(Tag::saved) == saved);
  }
  return trained({}, leaves);
}

/// Compares a run in this way with the plain one.
void check_way(const Program& program, std::size_t n, Way way, Offload& offload) {
  CAPTURE(n, static_cast<int>(way));
  const std::int64_t warnings = frozen_checkpoint_warnings();
  const auto outcome_of = [&](Way how) {
    ambient().streams = Streams(7);
    return program(n, {how, offload});
  };
  const Tensors expected = outcome_of(Way::plain);
  const AmbientSnapshot plain = AmbientSnapshot::now();
  const Tensors got = outcome_of(way);
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!same_bits(got[i], expected[i])) FAIL("tensor " << i);
  }
  CHECK(AmbientSnapshot::now() == plain);
  CHECK(frozen_checkpoint_warnings() == warnings);
}

void check_ways(const Program& program, std::size_t n, Offload& offload) {
  const Way way = GENERATE(Way::non_reentrant, Way::late_stop, Way::reentrant, Way::nested,
                           Way::policy, Way::offloaded, Way::sequential);
  check_way(program, n, way, offload);
}

/// Every op that takes a tensor of any shape, each twice, and in place.
Tensors any_shape(const Tensors& in) {
  Tensor y = tanh(in[0]);
  for (int i = 0; i < 2; ++i) {
    y = gelu(add(relu(y), sigmoid(y)));
    y = mul(leaky_relu(silu(y), 0.25), in[0]);
    y = gaussian_noise(rrelu(dropout(y, 0.25)), 0.5);
  }
  scale_(y, 2);
  return {reshape(scale(y, 3), {y.elements()}), tanh(sum(y))};
}

DType dtypes() { return GENERATE(DType::float32, DType::float64, DType::bfloat16); }

}  // namespace

TEST_CASE_METHOD(OffloadFixture, "a region of many of anything trains as the plain run does") {
  const Program program = GENERATE(
      Program(many_ops), Program(many_inputs_and_outputs<1>), Program(many_inputs_and_outputs<2>),
      Program(many_inputs_and_outputs<1000>), Program(many_results_of_an_op),
      Program(many_operands_of_an_op), Program(many_states), Program(many_streams),
      Program(many_casts<true>), Program(many_casts<false>), Program(many_forwards<1>),
      Program(many_forwards<7>), Program(many_backwards));
  check_ways(program, GENERATE(2U, 5U, 17U, 65U, 257U), offload());
}

TEST_CASE_METHOD(OffloadFixture, "a region of 1,025 ops or states trains as the plain run does") {
  const Program program = GENERATE(Program(many_ops), Program(many_states));
  check_ways(program, GENERATE(33U, 1025U), offload());
}

TEST_CASE_METHOD(OffloadFixture,
                 "a non-reentrant region of 65,537 ops or states trains as the plain run does") {
  check_way(GENERATE(Program(many_ops), Program(many_states)), 65537, Way::non_reentrant,
            offload());
}

TEST_CASE_METHOD(OffloadFixture, "a nesting of any depth and mix trains as the plain run does") {
  const Program program = GENERATE(Program(many_levels<false>), Program(many_levels<true>));
  check_ways(program, GENERATE(2U, 5U, 17U, 65U), offload());
}

TEST_CASE_METHOD(OffloadFixture, "tensors of no element, of one and of many train as plain ones") {
  // The last has more than a megabyte in every dtype, and is no multiple of a block or a word.
  const Shape shape = GENERATE(Shape{0}, Shape{0, 3}, Shape{3, 0}, Shape{2, 0, 3}, Shape{},
                               Shape{1}, Shape{1, 1, 1, 1, 1}, Shape{2}, Shape{(1 << 19) + 65537});
  const DType dtype = dtypes();
  // With one output the gradient of an empty one is all that a recomputation has to go by.
  const bool one_output = GENERATE(false, true);
  if (shape.elements() > 1000 && (one_output || dtype == DType::float64)) return;
  CAPTURE(to_string(shape), to_string(dtype), one_output);
  const Program program = [&](std::size_t /*n*/, const Runner& run) {
    const Function f = [one_output](const Tensors& in) {
      Tensors out = any_shape(in);
      if (one_output) out.pop_back();
      return out;
    };
    const Tensor x = values_off_zero(shape, 1, dtype).set_requires_grad(true);
    Tensors all = trained(run(f, {x}), {x});
    CHECK(all.back().shape() == shape);
    CHECK(all.back().dtype() == dtype);
    return all;
  };
  check_ways(program, 1, offload());
}

TEST_CASE_METHOD(OffloadFixture, "a batch of no rows trains as in a plain run") {
  const DType dtype = dtypes();
  CAPTURE(to_string(dtype));
  const Program program = [&](std::size_t rows, const Runner& run) {
    const Function f = [](const Tensors& in) -> Tensors {
      const Tensor y = softmax(linear(in[0], in[1], in[2]));
      const auto [left, right] = split(y, 1);
      return {tanh(concat(right, left)), tanh(flatten(y))};
    };
    const Tensors leaves{testing::leaf({static_cast<std::int64_t>(rows), 3}, 1, dtype),
                         testing::leaf({4, 3}, 2, dtype), testing::leaf({4}, 3, dtype)};
    return trained(run(f, leaves), leaves);
  };
  check_ways(program, GENERATE(0U, 1U, 2U), offload());
}

}  // namespace rematch
