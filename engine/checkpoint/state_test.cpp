// States that forwards change and read: README.md, section 1.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <utility>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/delayed_scaling.h"
#include "engine/tensor/state_reader.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using namespace testing;

using Values = std::vector<double>;
using Run = std::function<Tensor(const Function&, const Tensor&)>;

Tensor plain(const Function& f, const Tensor& x) { return f({x})[0]; }

Run checkpointed(CheckpointOptions options) {
  return [=](const Function& f, const Tensor& x) { return checkpoint(f, {x}, options)[0]; };
}

Run nested(CheckpointOptions outer, CheckpointOptions inner) {
  return [=](const Function& f, const Tensor& x) {
    const Function whole = [=](const Tensors& in) { return checkpoint(f, in, inner); };
    return checkpoint(whole, {x}, outer)[0];
  };
}

struct Trained {
  Values gradients;
  std::vector<Values> scales;
  friend bool operator==(const Trained&, const Trained&) = default;
};

/// Two forwards before their backwards, twice; layers differ in their scales.
Trained train(const Run& run) {
  Tensor a = tensor({2}, {1});
  Tensor b = tensor({5}, {1});
  const Function f = [&](const Tensors& in) -> Tensors {
    return {tanh(delayed_scaling(tanh(delayed_scaling(in[0], a, true)), b, true))};
  };
  Trained result;
  for (int step = 0; step < 2; ++step) {
    const Tensor x = variable({1.0 + step, -3}, {2});
    const Tensor z = variable({0.5, 4}, {2});
    const Tensor first = sum(run(f, x));
    const Tensor second = sum(run(f, z));
    backward(second);
    backward(first);
    for (const Tensor* t : {&x, &z}) {
      for (const double g : t->grad().to_vector()) result.gradients.push_back(g);
    }
    result.scales.push_back({a.item(), b.item()});
  }
  return result;
}

TEST_CASE_METHOD(LedgerScope, "a recomputation reads the states that its forward read") {
  const Trained expected = train(plain);
  const CheckpointOptions reentrant{.reentrant = true};
  const CheckpointOptions other{.reentrant = false};
  const CheckpointOptions whole{.reentrant = false, .early_stop = false};
  CHECK(train(checkpointed(reentrant)) == expected);
  CHECK(train(checkpointed(other)) == expected);
  CHECK(train(checkpointed(whole)) == expected);
  for (const CheckpointOptions& outer : {reentrant, other, whole}) {
    for (const CheckpointOptions& inner : {reentrant, other, whole}) {
      CHECK(train(nested(outer, inner)) == expected);
    }
  }
}

TEST_CASE_METHOD(LedgerScope,
                 "a state that was read counts as saved for as long as its region does") {
  const Tensor state = tensor({2}, {1});
  Tensor read;
  const Function f = [&](const Tensors& in) -> Tensors {
    read = read_state(state);
    return {tanh(in[0])};
  };
  const bool reentrant = GENERATE(true, false);
  const Tensor x = variable({1, -3}, {2});
  Tensor y = checkpoint(f, {x}, {.reentrant = reentrant})[0];
  const Tensor of_forward = read;
  CHECK(ledger().live(Tag::saved) == 2 * 8 + 8);
  backward(sum(y));
  y = Tensor();
  CHECK(ledger().live(Tag::saved) == 0);
  CHECK(of_forward.item() == 2);
}

TEST_CASE_METHOD(LedgerScope, "a region that nothing can recompute keeps no states") {
  Tensor scale = tensor({2}, {1});
  const Function f = [&](const Tensors& in) -> Tensors {
    return {tanh(delayed_scaling(in[0], scale, true))};
  };
  const bool reentrant = GENERATE(true, false);
  const Tensor x = tensor({1, -3}, {2});
  const std::int64_t before = ambient().ledger->live();
  const Tensor y = checkpoint(f, {x}, {.reentrant = reentrant})[0];
  CHECK(ambient().ledger->live() - before == 2 * 8);
}

TEST_CASE_METHOD(LedgerScope, "a recomputation that reads other states says what it expected") {
  enum class Reads { more, of_another_shape, of_another_dtype };
  const Reads reads = GENERATE(Reads::more, Reads::of_another_shape, Reads::of_another_dtype);
  Tensor one = tensor({2}, {1});
  Tensor pair = tensor({2, 3}, {2});
  Tensor narrow = tensor({2}, {1}, DType::float32);
  const Function f = [&](const Tensors& in) -> Tensors {
    const bool again = ambient().recomputing;
    read_state(again && reads == Reads::of_another_shape   ? pair
               : again && reads == Reads::of_another_dtype ? narrow
                                                           : one);
    if (again && reads == Reads::more) read_state(one);
    return {tanh(in[0])};
  };
  const Tensor x = variable({1}, {1});
  const Tensor y = checkpoint(f, {x}, {.reentrant = false, .early_stop = false})[0];
  const char* expected = reads == Reads::more ? "state 1 (float64 [1]), the forward read 1;"
                         : reads == Reads::of_another_shape
                             ? "state 0 (float64 [2]), the forward read float64 [1];"
                             : "state 0 (float32 [1]), the forward read float64 [1];";
  CHECK_THROWS_WITH(backward(sum(y)), ContainsSubstring(expected));
}

TEST_CASE_METHOD(LedgerScope, "a reader within a region sees all that is read there") {
  class Counting final : public StateReader {
   public:
    Counting() : outer_(std::exchange(ambient().states, this)) {}
    ~Counting() override { ambient().states = outer_; }
    Counting(const Counting&) = delete;
    Counting& operator=(const Counting&) = delete;
    Tensor read(const Tensor& state) override {
      ++count;
      return outer_->read(state);
    }
    int count = 0;

   private:
    StateReader* outer_;
  };
  const Tensor scale = tensor({2}, {1});
  int seen = 0;
  const Function f = [&](const Tensors& in) -> Tensors {
    const Counting reader;
    read_state(scale);
    read_state(scale);
    seen += reader.count;
    return {tanh(in[0])};
  };
  checkpoint(f, {variable({1}, {1})});
  CHECK(seen == 2);
}

TEST_CASE_METHOD(LedgerScope, "a function that differentiates inside finds its states") {
  const bool early_stop = GENERATE(true, false);
  const auto trained = [&](const Run& run) {
    Tensor a = tensor({2}, {1});
    Tensor b = tensor({5}, {1});
    const Function f = [&](const Tensors& in) -> Tensors {
      const Tensor h = tanh(delayed_scaling(in[0], a, true));
      const Tensor loss = sum(h);
      if (!ambient().recomputing) backward(loss, {.retain_graph = true});
      return {tanh(delayed_scaling(h, b, true))};
    };
    const Tensor x = variable({1, -3}, {2});
    backward(sum(run(f, x)));
    Values result = x.grad().to_vector();
    result.insert(result.end(), {a.item(), b.item()});
    return result;
  };
  CHECK(trained(checkpointed({.reentrant = false, .early_stop = early_stop})) == trained(plain));
}

}  // namespace
}  // namespace rematch
