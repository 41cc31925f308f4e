// Regions of many ops, tensors, levels or draws: each trains as its
// plain run does, in every way to checkpoint it, and recomputes exactly what it should.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/backward_group.h"
#include "engine/checkpoint/testing/ways.h"
#include "engine/cpu/threads.h"
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
using testing::check_way;
using testing::check_ways;
using testing::OffloadFixture;
using testing::Program;
using testing::Runner;
using testing::tensor;
using testing::trained;
using testing::values_off_zero;
using testing::variable;
using testing::Way;

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

/// Segments of one graph, one after the other.
Tensors many_segments(std::size_t n, const Runner& run) {
  const Tensor x = variable({-0.5}, {1});
  Tensors y{x};
  for (std::size_t i = 0; i < n; ++i) {
    y = run([](const Tensors& in) -> Tensors { return {rrelu(tanh(in[0]), 0.75, 1.25)}; }, y);
  }
  return trained(y, {x});
}

/// Backwards of one group, two from each region: what the first leaves is there for the second.
Tensors many_in_a_group(std::size_t n, const Runner& run) {
  Tensors leaves{variable({-0.5, 2}, {2}), variable({1.5, 0.5}, {2})};
  const Tensor weight = leaves[1];
  const Function f = [weight](const Tensors& in) -> Tensors {
    return {tanh(rrelu(mul(in[0], weight), 0.75, 1.25)),
            tanh(rrelu(mul(in[1], weight), 0.75, 1.25))};
  };
  std::vector<Tensors> outputs;
  for (std::size_t i = 0; i < n; ++i) {
    leaves.push_back(values_off_zero({2}, i).set_requires_grad(true));
    outputs.push_back(run(f, {leaves.back(), leaves[0]}));
  }
  const Tensor gradient = values_off_zero({2}, 9);
  const BackwardGroup group;
  for (const std::size_t side : {0U, 1U}) {
    for (Tensors& y : outputs) {
      backward(Tensors{std::exchange(y[side], {})}, Tensors{gradient}, {.retain_graph = true});
    }
  }
  return trained({}, leaves);
}

/// Draws that threads share out in the recomputation, other than in the forward.
Tensors many_draws(std::size_t n, const Runner& run) {
  const auto elements = static_cast<std::int64_t>(64 * n);
  const Tensor x = Tensor::full({elements}, DType::float32, -0.5).set_requires_grad(true);
  const Function draws = [](const Tensors& in) -> Tensors {
    return {tanh(gaussian_noise(rrelu(dropout(in[0], 0.25)), 0.5))};
  };
  const Tensors y = run(draws, {x});
  const cpu::ThreadsScope threads(3);
  return trained(y, {x});
}

using Count = std::size_t (*)(std::size_t n);
std::size_t none(std::size_t /*n*/) { return 0; }
std::size_t once(std::size_t /*n*/) { return 1; }
std::size_t all(std::size_t n) { return n; }
/// Results that the policy keeps of an op that runs n times in a region.
std::size_t half(std::size_t n) { return (n + 1) / 2; }

/// A program and the ops of its regions: those that come after a region's last save, and of the
/// others those that a policy keeps.
struct Book {
  std::string_view name;
  Program program;
  Count inside;
  Count after = none;
  Count kept = none;
  /// Recomputations of each region, by backward or by group, and backwards in each.
  Count passes = once;
  std::size_t walks = 1;

  std::int64_t recomputed(std::size_t n, Way way) const {
    return static_cast<std::int64_t>(count(n, way));
  }

 private:
  std::size_t count(std::size_t n, Way way) const {
    const std::size_t stopped = inside(n) - after(n);
    if (way == Way::plain) return 0;
    if (way == Way::late_stop) return passes(n) * inside(n);
    if (way == Way::reentrant) return passes(n) * walks * inside(n);
    if (way == Way::nested) return passes(n) * walks * (inside(n) + stopped);
    return passes(n) * (way == Way::policy ? stopped - kept(n) : stopped);
  }
};

const std::vector<Book> kBooks{
    {"ops", many_ops, all, none, [](std::size_t n) { return half(n - n / 3) + half(n / 3); }},
    {"inputs and outputs", many_inputs_and_outputs<1>, [](std::size_t n) { return 2 * n; }, none,
     [](std::size_t n) { return 2 * half(n); }},
    {"inputs, every second with a gradient", many_inputs_and_outputs<2>,
     [](std::size_t n) { return 2 * n; }, none, [](std::size_t n) { return 2 * half(n); }},
    {"inputs, few with a gradient", many_inputs_and_outputs<1000>,
     [](std::size_t n) { return 2 * n; }, none, [](std::size_t n) { return 2 * half(n); }},
    {"states", many_states, [](std::size_t n) { return 3 * n; }, once,
     [](std::size_t n) { return 3 * half(n) - n % 2; }},
    {"streams", many_streams, [](std::size_t n) { return 2 * n; }, none,
     [](std::size_t n) { return 2 * half(n); }},
    {"casts", many_casts<true>, [](std::size_t n) { return 8 * n; },
     [](std::size_t) -> std::size_t { return 2; }, [](std::size_t n) { return 4 * n; }},
    {"casts before the backward", many_casts<false>, [](std::size_t n) { return 8 * n; },
     [](std::size_t) -> std::size_t { return 2; }, [](std::size_t n) { return 4 * n; }},
    {"segments", many_segments, [](std::size_t n) { return 2 * n; }, none,
     [](std::size_t n) { return 2 * n; }},
    {"forwards", many_forwards<1>, [](std::size_t n) { return 6 * n; }, none,
     [](std::size_t n) { return 5 * n; }},
    {"forwards in another order", many_forwards<7>, [](std::size_t n) { return 6 * n; }, none,
     [](std::size_t n) { return 5 * n; }},
    {"backwards", many_backwards, [](std::size_t) -> std::size_t { return 6; }, none, none, all},
    {"in a group", many_in_a_group, [](std::size_t n) { return 6 * n; }, none,
     [](std::size_t n) { return 3 * n; }, once, 2},
    {"draws", many_draws, [](std::size_t) -> std::size_t { return 4; }, none,
     [](std::size_t) -> std::size_t { return 4; }},
};

}  // namespace

TEST_CASE_METHOD(
    OffloadFixture,
    "many of anything train as the plain run does, and recompute as many ops as said") {
  const Book& book = kBooks[GENERATE(range(std::size_t{0}, kBooks.size()))];
  const std::size_t n = GENERATE(2U, 33U, 257U, 1025U);
  const Way way = testing::ways();
  CAPTURE(book.name, n, static_cast<int>(way));
  CHECK(check_way(book.program, n, way, offload()) == book.recomputed(n, way));
}

TEST_CASE_METHOD(OffloadFixture, "65,537 ops, states or segments train as the plain run does") {
  const std::string_view name = GENERATE("ops", "states", "segments");
  const auto book =
      std::find_if(kBooks.begin(), kBooks.end(), [&](const Book& b) { return b.name == name; });
  CHECK(check_way(book->program, 65537, Way::non_reentrant, offload()) ==
        book->recomputed(65537, Way::non_reentrant));
}

TEST_CASE_METHOD(OffloadFixture, "an op of many operands or results trains as in the plain run") {
  const Program program = GENERATE(Program(many_results_of_an_op), Program(many_operands_of_an_op));
  check_ways(program, GENERATE(2U, 5U, 17U, 65U, 257U), offload());
}

TEST_CASE_METHOD(OffloadFixture, "a nesting of any depth and mix trains as the plain run does") {
  const Program program = GENERATE(Program(many_levels<false>), Program(many_levels<true>));
  check_ways(program, GENERATE(2U, 5U, 17U, 65U), offload());
}

}  // namespace rematch
