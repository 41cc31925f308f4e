// Regions of none, of one or of many of something: each trains as its plain run does, in every way
// to checkpoint it, and is held to its forward at every place.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <string>
#include <vector>

#include "engine/autograd/autocast.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/checkpoint/backward_group.h"
#include "engine/checkpoint/testing/ways.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/delayed_scaling.h"
#include "engine/ops/dropout.h"
#include "engine/ops/join.h"
#include "engine/ops/linear.h"
#include "engine/ops/noise.h"
#include "engine/ops/view.h"
#include "engine/testing/many_ops.h"
#include "engine/testing/offload_fixture.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using namespace testing;

/// Output i is the product of inputs i and i + 1; one is of integers. Every second input requires
/// grad.
Tensors inputs_and_outputs(std::size_t n, const Runner& run) {
  Tensors leaves;
  for (std::size_t i = 0; i < n; ++i) {
    leaves.push_back(values_off_zero({2}, i).set_requires_grad((n - i) % 2 == 1));
  }
  const Function products = [n](const Tensors& in) -> Tensors {
    Tensors out;
    for (std::size_t i = 0; i < n; ++i) out.push_back(mul(tanh(in[i]), in[(i + 1) % n]));
    out[n / 3] = Tensor::ones({2}, DType::int32);
    return out;
  };
  return trained(run(products, leaves), leaves);
}

/// States that one region reads and moves on, and streams of which it adds every second.
Tensors states_and_streams(std::size_t n, const Runner& run) {
  ambient().streams = Streams(7);
  const auto add_stream = [](std::size_t i) {
    return ambient().streams.add("stream " + std::to_string(i));
  };
  Tensors states;
  for (std::size_t i = 0; i < n; ++i) {
    states.push_back(Tensor::full({1}, DType::float64, 1 + static_cast<double>(i) / 1024));
    if (i % 2 == 0)
      ambient().streams.at(add_stream(i)).offset = (std::uint64_t{1} << (2 + i % 62)) - 4;
  }
  const Tensor x = variable({-0.5, -2}, {2});
  const Function f = [&](const Tensors& in) -> Tensors {
    Tensor y = in[0];
    for (std::size_t i = 0; i < n; ++i) {
      y = add(y, delayed_scaling(rrelu(tanh(in[0]), 0.75, 1.25, {.stream = add_stream(i)}),
                                 states[i], true));
    }
    return {y};
  };
  const Tensors y = run(f, {x});
  for (std::size_t i = 0; i < n; ++i)
    ambient().streams.at(add_stream(i)).draw(static_cast<std::int64_t>(4 * (i % 3)));
  Tensors all = trained(y, {x});
  all.insert(all.end(), states.begin(), states.end());
  return all;
}

/// Each level works and draws on the way in and out; at odd levels the run around is the reentrant
/// one.
Tensors levels(std::size_t n, const Runner& run) {
  Tensors leaves{variable({-0.5, -0.25}, {2})};
  for (std::size_t i = 0; i <= n; ++i)
    leaves.push_back(values_off_zero({2}, i).set_requires_grad(true));
  const std::function<Tensor(std::size_t, const Tensor&)> level = [&](std::size_t i,
                                                                      const Tensor& x) -> Tensor {
    const Tensor h = rrelu(tanh(mul(x, leaves[i + 1])), 0.75, 1.25);
    if (i == n) return h;
    const Runner inside{i % 2 == 1 && run.way != Way::plain ? Way::reentrant : run.way,
                        run.offload};
    const Function f = [&level, i](const Tensors& in) -> Tensors { return {level(i + 1, in[0])}; };
    return rrelu(tanh(inside(f, {h})[0]), 0.75, 1.25);
  };
  return trained({level(0, leaves[0])}, leaves);
}

/// Two uses of each of n weights under autocast, cast once each.
Tensors casts(std::size_t n, const Runner& run) {
  Tensors leaves{testing::leaf({1, 2}, 1000)};
  for (std::size_t i = 0; i < n; ++i) leaves.push_back(testing::leaf({2, 2}, i));
  const Function f = [&](const Tensors& in) -> Tensors {
    Tensor y = in[0];
    for (std::size_t i = 0; i < 2 * n; ++i)
      y = add(y, scale(tanh(linear(y, leaves[1 + i % n])), 1.0 / 64));
    return {y};
  };
  const AutocastScope scope;
  return trained(run(f, {leaves[0]}), leaves);
}

/// Forwards that draw, before the backwards of one group, of which two go through each.
Tensors forwards(std::size_t n, const Runner& run) {
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
    for (std::size_t i = 0; i < n; ++i) {
      Tensors& y = outputs[7 * i % n];
      backward(Tensors{std::exchange(y[side], {})}, Tensors{gradient}, {.retain_graph = true});
    }
  }
  return trained({}, leaves);
}

/// Every op that takes a tensor of any shape, in place, too, on n elements of several shapes.
Tensors elements(std::size_t n, const Runner& run) {
  const auto count = static_cast<std::int64_t>(n);
  Tensors all;
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
    for (const Shape& shape : {Shape{count}, Shape{3, count}, Shape{2, count, 1, 1, 1}}) {
      const Function f = [](const Tensors& in) -> Tensors {
        Tensor y = gelu(add(relu(tanh(in[0])), sigmoid(in[0])));
        y = gaussian_noise(rrelu(dropout(mul(leaky_relu(silu(y), 0.25), in[0]), 0.25)), 0.5);
        scale_(y, 2);
        return {reshape(scale(y, 3), {y.elements()})};
      };
      const Tensor x = values_off_zero(shape, 1, dtype).set_requires_grad(true);
      const Tensors here = trained(run(f, {x}), {x});
      all.insert(all.end(), here.begin(), here.end());
    }
  }
  return all;
}

/// A batch of n rows.
Tensors rows(std::size_t n, const Runner& run) {
  const Function f = [](const Tensors& in) -> Tensors {
    const Tensor y = softmax(linear(in[0], in[1], in[2]));
    const auto [left, right] = split(y, 1);
    return {tanh(concat(right, left)), tanh(flatten(y))};
  };
  const Tensors leaves{testing::leaf({static_cast<std::int64_t>(n), 3}, 1),
                       testing::leaf({4, 3}, 2), testing::leaf({4}, 3)};
  return trained(run(f, leaves), leaves);
}

Tensors ops(std::size_t n, const Runner& run) {
  const Tensor x = variable({-0.5}, {1});
  return trained(run([n](const Tensors& in) -> Tensors { return {chain(n, in[0])}; }, {x}), {x});
}

Tensors states(std::size_t n, const Runner& run) {
  const Tensor x = variable({-0.5, 2}, {2});
  Tensors moved;
  for (std::size_t i = 0; i < n; ++i)
    moved.push_back(Tensor::full({1}, DType::float64, 1 + static_cast<double>(i) / 1024));
  const Function f = [&](const Tensors& in) -> Tensors {
    Tensor y = in[0];
    for (Tensor& state : moved) y = add(y, delayed_scaling(in[0], state, true));
    return {y};
  };
  Tensors all = trained(run(f, {x}), {x});
  all.insert(all.end(), moved.begin(), moved.end());
  return all;
}

Tensors segments(std::size_t n, const Runner& run) {
  const Tensor x = variable({-0.5}, {1});
  Tensors y{x};
  for (std::size_t i = 0; i < n; ++i)
    y = run([](const Tensors& in) -> Tensors { return {tanh(in[0])}; }, y);
  return trained(y, {x});
}

/// Ways in which a recomputation may differ from its forward at one of many places.
enum class Change { arguments, exchanged, written, copy_written, input_exchanged };

}  // namespace

TEST_CASE_METHOD(OffloadFixture, "many of anything train as the plain run does, in every way") {
  const Program program =
      GENERATE(Program(inputs_and_outputs), Program(states_and_streams), Program(levels),
               Program(casts), Program(forwards), Program(elements), Program(rows));
  check_ways(program, GENERATE(1U, 2U, 33U), offload());
}

TEST_CASE_METHOD(OffloadFixture,
                 "more than 16 bits of ops, states or segments recompute just these") {
  constexpr std::int64_t n = 65537;
  const auto [program, way, recomputed] = GENERATE_COPY(table<Program, Way, std::int64_t>(
      {// The policy keeps the first op of each name, and every second from there.
       {ops, Way::policy, n / 2},
       {states, Way::non_reentrant, 2 * n - 1},
       {segments, Way::non_reentrant, n}}));
  CHECK(check_way(program, n, way, offload()) == recomputed);
}

TEST_CASE_METHOD(OffloadFixture, "of no elements or rows a step trains as the plain run does") {
  check_ways(GENERATE(Program(elements), Program(rows)), 0, offload());
}

TEST_CASE_METHOD(LedgerScope, "a recomputation that differs is noticed wherever it does") {
  constexpr std::size_t n = 17;
  const Change change = GENERATE(Change::arguments, Change::exchanged, Change::written,
                                 Change::copy_written, Change::input_exchanged);
  const bool reentrant = GENERATE(false, true);
  // Inputs may come back in other memory; then their place alone tells which is which.
  FunctionHooks copying([](const Tensor& t) { return t.clone(); },
                        [](const Tensor& t) { return t.clone(); });
  const HookScope hooks(GENERATE(false, true) ? &copying : nullptr);
  for (std::size_t p = 0; p < n; ++p) {
    CAPTURE(static_cast<int>(change), reentrant, p);
    Tensors captured;
    Tensors inputs{variable({1}, {1})};
    for (std::size_t i = 0; i < n; ++i) {
      captured.push_back(tensor({1}, {1}).set_name("captured " + std::to_string(i)));
      inputs.push_back(tensor({1}, {1}));
    }
    std::size_t changed = n;
    const Function f = [&](const Tensors& in) -> Tensors {
      Tensor y = in[0];
      for (std::size_t i = 0; i < n; ++i) {
        y = scale(y, i == changed && change == Change::arguments ? 1 : -1);
        y = mul(y, change == Change::copy_written ? captured[i].clone() : captured[i]);
        y = mul(
            y, in[i == changed && change == Change::input_exchanged ? (i + 2) % in.size() : i + 1]);
      }
      return {tanh(y)};
    };
    const Tensor y = checkpoint(f, inputs, {.reentrant = reentrant})[0];
    changed = p;
    if (change == Change::exchanged) captured[p] = tensor({1}, {1});
    if (change == Change::written || change == Change::copy_written) scale_(captured[p], 1);
    const auto op = [p](std::size_t k) { return "op " + std::to_string(3 * p + k); };
    const std::string written = "captured " + std::to_string(p) + "\" (float64 [1])";
    const std::string messages[] = {op(0) + " was scale", "than the one that " + op(1) + " read",
                                    written + ", operand 1 of mul, was changed in place",
                                    written + " was changed in place",
                                    "than the one that " + op(2) + " read"};
    CHECK_THROWS_WITH(backward(y), ContainsSubstring(messages[static_cast<std::size_t>(change)]));
  }
}

TEST_CASE_METHOD(LedgerScope, "a saved tensor that differs is noticed wherever it stands") {
  constexpr std::size_t n = 17;
  enum class Differs { in_shape, in_dtype, in_bits };
  const Differs way = GENERATE(Differs::in_shape, Differs::in_dtype, Differs::in_bits);
  std::size_t differs = n;
  std::vector<SavedTensor> kept;
  // Saves by itself, as a node of the user's would: no op tells of shapes.
  const Function f = [&](const Tensors& in) -> Tensors {
    std::vector<SavedTensor> saved(n);
    for (std::size_t i = 0; i < n; ++i) {
      const bool other = i == differs;
      saved[i].save(
          Tensor::full({other && way == Differs::in_shape ? 2 : 1},
                       other && way == Differs::in_dtype ? DType::float32 : DType::float64,
                       other && way == Differs::in_bits ? 2 : 1));
    }
    if (kept.empty()) kept = std::move(saved);
    return {in[0]};
  };
  const auto check =
      way == Differs::in_bits ? DeterminismCheck::values : DeterminismCheck::metadata;
  checkpoint(f, {variable({0.5}, {1})}, {.determinism = check});
  // The recomputation is asked for the first alone, and compares all.
  for (differs = 0; differs < n; ++differs) {
    CAPTURE(static_cast<int>(way), differs);
    CHECK_THROWS_WITH(
        kept.front().get("mine"),
        ContainsSubstring("saved tensor " + std::to_string(differs) + " (float64 [1])"));
  }
  for (SavedTensor& saved : kept) CHECK(saved.get("mine").item() == 1);
}

}  // namespace rematch
