// Regions of many ops, saved tensors and captured tensors: the last is held to the same as the
// first.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/many_ops.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::LedgerScope;
using testing::tensor;
using testing::variable;

/// All of 0..n-1, or the last of thousands.
std::vector<std::size_t> positions(std::size_t n) {
  if (n > 1000) return {n - 1};
  std::vector<std::size_t> all(n);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

std::vector<Tensor> constants(std::size_t n) {
  std::vector<Tensor> made;
  for (std::size_t i = 0; i < n; ++i) made.push_back(tensor({1}, {1}));
  return made;
}

/// Ways in which a recomputation may differ from its forward at one of many places.
enum class Change {
  arguments,
  captured_exchanged,
  captured_written,
  copied_written,  ///< A captured tensor of which the ops read a copy alone.
  input_exchanged,
  input_written,
};

/// A chain of n ops, each of which reads something of its own.
class ChangedChain {
 public:
  ChangedChain(Change change, std::size_t n)
      : change_(change), captured_(constants(n)), inputs_(constants(n + 1)), changed_(n) {
    for (std::size_t i = 0; i < n; ++i) captured_[i].set_name("captured " + std::to_string(i));
    inputs_[0].set_requires_grad(true);
  }

  /// A graph whose forward was written over is of no use any more.
  bool writes() const {
    return change_ == Change::captured_written || change_ == Change::copied_written ||
           change_ == Change::input_written;
  }

  Tensor run(bool reentrant) {
    return checkpoint([this](const Tensors& in) { return chain(in); }, inputs_,
                      {.reentrant = reentrant})[0];
  }

  void change(std::size_t p) {
    if (change_ == Change::captured_exchanged) std::swap(captured_[p], other_);
    if (change_ == Change::arguments || change_ == Change::input_exchanged) changed_ = p;
    if (writes()) scale_(change_ == Change::input_written ? inputs_[p + 1] : captured_[p], 1);
  }
  void undo(std::size_t p) {
    if (change_ == Change::captured_exchanged) std::swap(captured_[p], other_);
    changed_ = captured_.size();
    inputs_[p + 1] = tensor({1}, {1});
  }

  std::string message(std::size_t p) const {
    const std::string place = std::to_string(p);
    const std::string name = "\"captured " + place + "\" (float64 [1])";
    switch (change_) {
      case Change::arguments:
        return "op " + place + " was scale, the recomputation runs scale with other arguments";
      case Change::captured_exchanged:
      case Change::input_exchanged:
        return "is another tensor than the one that op " + place + " read there";
      case Change::captured_written:
        return name + ", operand 1 of mul, was changed in place since the forward";
      case Change::copied_written:
        return name + " was changed in place";
      case Change::input_written:
        return "[1] was changed by an in-place operation: version 0 expected, got 1";
    }
    return {};
  }

 private:
  Tensors chain(const Tensors& in) const {
    Tensor y = in[0];
    for (std::size_t i = 0; i < captured_.size(); ++i) {
      if (change_ == Change::arguments) {
        y = scale(y, i == changed_ ? 1 : -1);
      } else if (change_ == Change::copied_written) {
        y = mul(y, captured_[i].clone());
      } else if (change_ == Change::input_exchanged || change_ == Change::input_written) {
        y = mul(y, in[i == changed_ ? (i + 2) % in.size() : i + 1]);
      } else {
        y = mul(y, captured_[i]);
      }
    }
    return {tanh(y)};
  }

  Change change_;
  Tensors captured_;
  Tensors inputs_;
  std::size_t changed_;
  Tensor other_ = tensor({1}, {1});
};

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a recomputation that differs is noticed wherever it does") {
  const Change change =
      GENERATE(Change::arguments, Change::captured_exchanged, Change::captured_written,
               Change::copied_written, Change::input_exchanged, Change::input_written);
  const std::size_t n = GENERATE(2U, 5U, 17U, 65U, 257U, 65537U);
  const bool reentrant = GENERATE(false, true);
  // Inputs may come back in other memory; then their place alone tells which is which.
  const bool copies = GENERATE(false, true);
  if (copies && change != Change::input_exchanged) return;
  // Regions of both variants are compared alike, and inputs are looked for one by one.
  if (n > 1000 && (reentrant || change > Change::captured_written)) return;
  FunctionHooks copying([](const Tensor& t) { return t.clone(); },
                        [](const Tensor& t) { return t.clone(); });
  const HookScope hooks(copies ? &copying : nullptr);
  ChangedChain chain(change, n);
  Tensor y = chain.run(reentrant);
  for (const std::size_t p : positions(n)) {
    CAPTURE(static_cast<int>(change), n, reentrant, copies, p);
    chain.change(p);
    CHECK_THROWS_WITH(backward(y, {.retain_graph = true}), ContainsSubstring(chain.message(p)));
    chain.undo(p);
    if (chain.writes()) y = chain.run(reentrant);
  }
  CHECK_NOTHROW(backward(y));
}

TEST_CASE_METHOD(LedgerScope, "a saved tensor that differs is noticed wherever it stands") {
  enum class Way { shape, dtype, bits };
  const Way way = GENERATE(Way::shape, Way::dtype, Way::bits);
  const std::size_t n = GENERATE(2U, 5U, 17U, 257U, 65537U);
  if (n > 1000 && way != Way::bits) return;  // All are compared at one place.
  std::size_t differs = n;
  std::vector<SavedTensor> kept;
  // Saves by itself, as a node of the user's would: no op tells of shapes.
  const Function f = [&](const Tensors& in) -> Tensors {
    std::vector<SavedTensor> saved(n);
    for (std::size_t i = 0; i < n; ++i) {
      const bool other = i == differs;
      saved[i].save(Tensor::full({other && way == Way::shape ? 2 : 1},
                                 other && way == Way::dtype ? DType::float32 : DType::float64,
                                 other && way == Way::bits ? 2 : 1));
    }
    if (kept.empty()) kept = std::move(saved);
    return {in[0]};
  };
  checkpoint(f, {variable({0.5}, {1})}, {.determinism = DeterminismCheck::values});
  // The recomputation is asked for these alone, and compares all.
  for (const std::size_t p : positions(n)) {
    differs = p;
    CAPTURE(static_cast<int>(way), n, p);
    CHECK_THROWS_WITH(kept.front().get("mine"),
                      ContainsSubstring("saved tensor " + std::to_string(p) + " (float64 [1])"));
  }
  differs = n;
  for (const std::size_t p : positions(n)) CHECK(kept[p].get("mine").item() == 1);
}

TEST_CASE_METHOD(LedgerScope, "each operand of one op is held to what it was in the forward") {
  testing::with_count(GENERATE(2, 5, 17, 65, 257), [&]<std::size_t N>() {
    const bool reentrant = GENERATE(false, true);
    std::array<Tensor, N> captured;
    for (Tensor& t : captured) t = tensor({1}, {1});
    const Function f = [&](const Tensors& in) -> Tensors {
      std::array<Tensor, N> operands = captured;
      operands[0] = in[0];
      return {tanh(testing::squares(operands))};
    };
    const Tensor x = variable({0.5}, {1});
    for (std::size_t p = 1; p < N; ++p) {
      CAPTURE(N, reentrant, p);
      const std::string operand = "operand " + std::to_string(p) + " of squares (float64 [1]) ";
      const Tensor y = checkpoint(f, {x}, {.reentrant = reentrant})[0];
      const Tensor before = std::exchange(captured[p], tensor({1}, {1}));
      CHECK_THROWS_WITH(backward(y, {.retain_graph = true}),
                        ContainsSubstring(operand + "is another tensor"));
      captured[p] = Tensor::ones({1, 1}, DType::float64);
      CHECK_THROWS_WITH(backward(y, {.retain_graph = true}),
                        ContainsSubstring("squares on other shapes or dtypes"));
      captured[p] = Tensor::ones({1}, DType::float32);
      CHECK_THROWS_WITH(backward(y, {.retain_graph = true}),
                        ContainsSubstring("squares on other shapes or dtypes"));
      captured[p] = before;
      scale_(captured[p], 2);
      CHECK_THROWS_WITH(backward(y), ContainsSubstring(operand + "was changed in place"));
    }
  });
}

TEST_CASE_METHOD(LedgerScope, "each result of one op that a policy kept is held to its version") {
  constexpr std::size_t N = 17;
  std::array<Tensor, N> results;
  const Function f = [&](const Tensors& in) -> Tensors {
    results = testing::powers<N>(in[0]);
    return {results.begin(), results.end()};
  };
  const CheckpointOptions keeping{.policy = [](const OpInstance&) { return Keep::must_save; }};
  for (std::size_t p = 0; p < N; ++p) {
    CAPTURE(p);
    const Tensors y = checkpoint(f, {variable({-1}, {1})}, keeping);
    for (Tensor& t : results) t = t.detach();
    scale_(results[p], 2);
    CHECK_THROWS_WITH(backward(y[p]), ContainsSubstring("was changed in place since"));
    results = {};
  }
}

TEST_CASE_METHOD(LedgerScope, "no result of an op stands for another, of this op or of the next") {
  testing::with_count(GENERATE(2, 5, 17, 65, 257), [&]<std::size_t N>() {
    const bool reentrant = GENERATE(false, true);
    std::size_t read = 0;
    // All of few, and of many those around the ends of both ops and of eight bits.
    std::set<std::size_t> reads{0, 1, N - 2, N - 1, N, N + 1, 2 * N - 2, 2 * N - 1};
    constexpr std::size_t kStep = N > 100 ? 64 : 1;
    for (std::size_t i = 0; i < 2 * N; i += kStep) reads.insert(i);
    const Function f = [&](const Tensors& in) -> Tensors {
      const std::array<Tensor, N> first = testing::powers<N>(in[0]);
      const std::array<Tensor, N> second = testing::powers<N>(in[1]);
      return {mul(in[0], read < N ? first[read] : second[read - N])};
    };
    const Tensor x = variable({-1}, {1});
    for (const std::size_t forward : {std::size_t{0}, N - 1, N}) {
      read = forward;
      const Tensor y = checkpoint(f, {x, x}, {.reentrant = reentrant})[0];
      for (const std::size_t other : reads) {
        if (other == forward) continue;
        read = other;
        CAPTURE(N, reentrant, forward, read);
        CHECK_THROWS_WITH(backward(y, {.retain_graph = true}),
                          ContainsSubstring("operand 1 of mul (float64 [1]) is another tensor"));
      }
      read = forward;
      CHECK_NOTHROW(backward(y));
    }
  });
}

}  // namespace rematch
