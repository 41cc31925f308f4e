// Bounds that were derived by hand, to first order, beside those of the analysis. Data of magnitude
// 1 makes both tight.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "properties/bounds/functions.h"
#include "properties/forecast/testing/small_cases.h"
#include "properties/layers/layer.h"
#include "properties/layers/layer_run.h"
#include "properties/rounding/losses.h"

namespace rematch::rounding {
namespace {

using testing::dense;
using testing::layer;

constexpr double kU = 0x1p-24;

Bounds new_bounds() { return {{kU, 0x1p-149, 0x1p127}, 100000}; }

/// Alternating signs, so that sums cancel and their magnitudes do not.
Vars ones(Bounds& t, std::int64_t count) {
  Vars x;
  for (std::int64_t i = 0; i < count; ++i) x.push_back(t.leaf({i % 2 == 0 ? 1.0 : -1.0, 0}));
  return x;
}

Vars repeated(Bounds& t, std::int64_t count, double value) {
  Vars x;
  for (std::int64_t i = 0; i < count; ++i) x.push_back(t.leaf({value, 0}));
  return x;
}

double largest_error(const Bounds& t, const Vars& x) {
  double error = 0;
  for (const Var v : x) error = std::max(error, t[v].error);
  return error;
}

double largest_error(const std::vector<Bounded>& gradients, const Vars& by) {
  double error = 0;
  for (const Var v : by) error = std::max(error, gradients[static_cast<std::size_t>(v)].error);
  return error;
}

/// The analysis also charges for steps that implementations may insert, and functions with 8 u
/// where libraries promise 4.
void check_is_near(double error, double by_hand) {
  CHECK(error >= by_hand / 4);
  CHECK(error <= by_hand * 4);
}

/// Higham, ch. 3: a sum of n products of magnitude 1 is off by n u times its n terms; a bias and a
/// division are two steps more.
double dot(double n) { return (n + 2) * kU * n; }

}  // namespace

TEST_CASE("a linear layer is off by its sums of products, its gradients by theirs") {
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kWidth = 6;
  constexpr std::int64_t kFeatures = 4;
  Bounds t = new_bounds();
  const LayerSpec spec = dense(kFeatures);
  LayerRun run{t,
               spec,
               true,
               Shape{kRows, kWidth},
               {},
               Shape{kRows, kFeatures},
               {ones(t, kRows * kWidth)},
               {repeated(t, kFeatures * kWidth, 1), ones(t, kFeatures)}};
  const Vars y = layer_of(spec).bounds(run)[0];
  check_is_near(largest_error(t, y), dot(kWidth) + (kWidth + 1) * kU);
  for (const Var v : y) t.plus(v);
  const std::vector<Bounded> gradients = t.gradients(t.sum());
  check_is_near(largest_error(gradients, run.operands[0]), dot(kFeatures));
  check_is_near(largest_error(gradients, run.parameters[0]), dot(kRows));
}

TEST_CASE("tanh is within 3 ulp, and its derivative moves with it") {
  Bounds t = new_bounds();
  const Vars x = repeated(t, 1, 2);
  const Var y = tanh(t, x[0]);
  check_is_near(t[y].error, 6 * kU);
  // 1 - y y: twice the error of y, a product and a difference.
  check_is_near(largest_error(t.gradients(y), x), (2 * 6 + 3) * kU);
}

TEST_CASE("softmax has the errors of two exponentials, of their arguments and of the sum") {
  constexpr double kColumns = 4;
  Bounds t = new_bounds();
  const LayerSpec spec = layer("softmax");
  LayerRun run{t, spec, true, Shape{1, 4}, {}, Shape{1, 4}, {ones(t, 4)}, {}};
  const double top = 1 / (2 + 2 * std::exp(-2.0));
  check_is_near(largest_error(t, layer_of(spec).bounds(run)[0]),
                (2 * (4 + 2) + kColumns + 2) * kU * top);
}

TEST_CASE("layer_norm is off by its mean, its variance and the root") {
  constexpr double kColumns = 4;
  Bounds t = new_bounds();
  const LayerSpec spec = layer("layer_norm");
  LayerRun run{t,  spec,        true,         Shape{1, 4},
               {}, Shape{1, 4}, {ones(t, 4)}, {repeated(t, 4, 1), repeated(t, 4, 0)}};
  const double centred = (kColumns + 3) * kU;
  const double of_root = centred + (kColumns + 3) * kU / 2 + 3 * kU;
  check_is_near(largest_error(t, layer_of(spec).bounds(run)[0]),
                centred + of_root + 2 * kU + 2 * kU);
}

TEST_CASE("the losses are off by their differences, exponentials and means") {
  constexpr double kCount = 8;
  Bounds t = new_bounds();
  // Differences of 2, each off by a rounding; squares by three.
  const Var mse = mean_squared_error(t, repeated(t, 8, 1), std::vector<double>(8, -1));
  check_is_near(t[mse].error, (kCount + 5) * kU * 4);
  // log(sum exp(x - 1)) + 1 - x of rows of 1 and -1: exp by 2 ulp and its argument, log by 2 ulp.
  const Var entropy = cross_entropy(t, ones(t, 2), {1});
  const double size = 2 + std::log1p(std::exp(-2.0));
  check_is_near(t[entropy].error, (4 + 2 + 4) * kU + 3 * kU * size);
}

}  // namespace rematch::rounding
