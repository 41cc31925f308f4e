#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <cmath>
#include <set>
#include <sstream>
#include <stdexcept>

#include "engine/testing/ledger_scope.h"
#include "golden/numerics/testing/bounds.h"
#include "golden/numerics/testing/run_entry.h"

namespace rematch::golden {
namespace {

using Catch::Matchers::Message;
using testing::LedgerScope;

/// A line for each tensor that differs: how many elements, and the first of them.
class Comparison {
 public:
  void compare(const std::string& place, const Tensor& got, const Tensor& want, double bound) {
    if (!got.defined() || !(got.shape() == want.shape()) || got.dtype() != want.dtype()) {
      mismatches.push_back(place + ": " + std::string(to_string(want.dtype())) + " " +
                           to_string(want.shape()) + " expected, got " +
                           (got.defined() ? to_string(got.shape()) : "nothing"));
      return;
    }
    int wrong = 0;
    std::ostringstream first;
    first.precision(17);
    for (std::int64_t i = 0; i < want.elements(); ++i) {
      // Written so that a NaN is a mismatch.
      if (std::abs(got.at(i) - want.at(i)) <= 2 * bound) continue;
      if (wrong++ == 0) {
        first << want.at(i) << " +- " << 2 * bound << " expected at " << i << ", got " << got.at(i);
      }
    }
    if (wrong == 0) return;
    mismatches.push_back(place + ": " + std::to_string(wrong) + " of " +
                         std::to_string(want.elements()) + " elements differ; " + first.str());
  }
  std::vector<std::string> mismatches;
};

std::vector<std::string> mismatches_of(const Entry& entry) {
  const Bounds bounds = bounds_of(entry);
  const EntryOutcome got = run_entry(entry);
  Comparison c;
  for (std::size_t i = 0; i < entry.outputs.size(); ++i) {
    const Tensor output = i < got.outputs.size() ? got.outputs[i] : Tensor();
    c.compare("output " + std::to_string(i), output, entry.outputs[i], bounds.output);
  }
  for (const auto& [name, want] : entry.gradients) {
    c.compare("gradient of " + name, got.gradients.at(name), want, bounds.gradients.at(name));
  }
  for (const auto& [name, want] : entry.after) {
    c.compare(name + " afterwards", got.after.at(name), want, bounds.after.at(name));
  }
  return c.mismatches;
}

const Entry& entry_named(const std::vector<Entry>& entries, std::string_view name, DType dtype) {
  for (const Entry& e : entries) {
    if (e.name == name && e.dtype == dtype) return e;
  }
  throw std::runtime_error("no entry " + std::string(name));
}

TEST_CASE_METHOD(LedgerScope, "the engine computes what PyTorch computes, up to rounding") {
  for (const Entry& entry : read_numerics()) {
    for (const std::string& mismatch : mismatches_of(entry)) {
      FAIL_CHECK(entry.name << ", " << to_string(entry.dtype) << ": " << mismatch);
    }
  }
  SUCCEED();
}

TEST_CASE_METHOD(LedgerScope,
                 "every op of the engine that draws nothing has entries in both dtypes") {
  const std::set<std::string> expected{"adam",
                                       "add",
                                       "attention",
                                       "avg_pool2d",
                                       "batch_norm",
                                       "cnn",
                                       "concat",
                                       "conv2d",
                                       "cross_entropy",
                                       "delayed_scaling",
                                       "early_exit",
                                       "embedding",
                                       "flatten",
                                       "gru",
                                       "lstm",
                                       "gelu",
                                       "delayed_float8",
                                       "group_norm",
                                       "kv_cache",
                                       "layer_norm",
                                       "leaky_relu",
                                       "linear",
                                       "max_pool2d",
                                       "mlp",
                                       "moe",
                                       "mse_loss",
                                       "mul",
                                       "relu",
                                       "rms_norm",
                                       "rotary",
                                       "hooked",
                                       "stochastic_depth",
                                       "sgd",
                                       "sigmoid",
                                       "silu",
                                       "softmax",
                                       "spectral_norm",
                                       "split",
                                       "sum",
                                       "tanh",
                                       "scale"};
  std::map<DType, std::set<std::string>> found;
  for (const Entry& e : read_numerics()) found[e.dtype].insert(e.op);
  CHECK(found[DType::float32] == expected);
  CHECK(found[DType::float64] == expected);
}

TEST_CASE_METHOD(LedgerScope, "no bound is so wide that it would let a wrong formula pass") {
  // Relative to the largest value: 2^-24 times some hundred roundings for ops, and what three steps
  // of a model amplify; in float64 a millionth of a millionth.
  for (const Entry& entry : read_numerics()) {
    CAPTURE(entry.name, to_string(entry.dtype));
    const bool model = entry.op == "mlp" || entry.op == "cnn";
    const double allowed = entry.dtype == DType::float64 ? 1e-10 : model ? 0.1 : 1e-3;
    const Bounds bounds = bounds_of(entry);
    double scale = 0;
    for (const Tensor& t : entry.outputs) scale = std::max(scale, largest(t));
    CHECK(bounds.output <= allowed * scale);
    for (const auto& [name, bound] : bounds.gradients) {
      if (entry.gradients.count(name) == 0) continue;
      CHECK(bound <= allowed * std::max(1.0, largest(entry.gradients.at(name))));
    }
    for (const auto& [name, bound] : bounds.after) {
      CHECK(bound <= allowed * std::max(1.0, largest(entry.after.at(name))));
    }
  }
}

TEST_CASE_METHOD(LedgerScope,
                 "a value that is off by a bit too much is found, wherever it stands") {
  const std::vector<Entry> entries = read_numerics();
  const auto off = [](Tensor& t, double by) {
    t = t.clone();
    t.data<double>()[t.elements() - 1] += by;
  };
  const Entry good = entry_named(entries, "batch_norm, rank 4, training", DType::float64);
  REQUIRE(mismatches_of(good).empty());
  Entry output = good;
  off(output.outputs[0], 1e-11);
  CHECK(mismatches_of(output).size() == 1);
  Entry gradient = good;
  off(gradient.gradients["x"], -1e-11);
  CHECK(mismatches_of(gradient).size() == 1);
  Entry statistic = good;
  off(statistic.after["running_var"], 1e-11);
  CHECK(mismatches_of(statistic).size() == 1);
  Entry nan = good;
  off(nan.outputs[0], std::nan(""));
  CHECK(mismatches_of(nan).size() == 1);
  Entry shape = good;
  shape.outputs[0] = Tensor::zeros({2}, DType::float64);
  CHECK(mismatches_of(shape).size() == 1);
}

TEST_CASE_METHOD(LedgerScope, "an exact op may not differ by a single bit") {
  const std::vector<Entry> entries = read_numerics();
  Entry entry = entry_named(entries, "add", DType::float32);
  REQUIRE(mismatches_of(entry).empty());
  Tensor& y = entry.outputs[0];
  y = y.clone();
  y.data<float>()[0] = std::nextafter(y.data<float>()[0], 100.0F);
  CHECK(mismatches_of(entry).size() == 1);
}

TEST_CASE_METHOD(LedgerScope, "a numerics file of another format is refused, with the way out") {
  CHECK_THROWS_MATCHES(
      parse_numerics(R"({"format": 2, "ops": []})"), std::runtime_error,
      Message("[golden] golden/numerics/numerics.json cannot be used: format 1 expected, "
              "got 2; run golden/make_numerics"));
  CHECK_THROWS_MATCHES(
      parse_numerics(R"({"ops": []})"), std::runtime_error,
      Message("[golden] golden/numerics/numerics.json cannot be used: format 1 expected, "
              "got 0; run golden/make_numerics"));
  CHECK_THROWS_AS(parse_numerics(R"({"format": 1})"), std::runtime_error);
  CHECK_THROWS_AS(parse_numerics(R"({"format": 1, "ops": [{"name": "add"}]})"), std::runtime_error);
  CHECK_THROWS_AS(parse_numerics(""), std::runtime_error);
  CHECK(parse_numerics(R"({"format": 1, "ops": []})").empty());
}

TEST_CASE_METHOD(LedgerScope, "an op that the engine does not have is refused") {
  Entry entry;
  entry.op = "fft";
  CHECK_THROWS_AS(run_entry(entry), std::runtime_error);
  CHECK_THROWS_AS(bounds_of(entry), std::runtime_error);
}

}  // namespace
}  // namespace rematch::golden
