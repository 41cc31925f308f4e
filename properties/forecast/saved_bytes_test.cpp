#include <catch2/catch_test_macros.hpp>

#include "properties/forecast/testing/small_cases.h"

namespace rematch {
namespace {

using namespace testing;

constexpr std::int64_t kFloat = 4;
/// An activation of batch 4 and width 8.
constexpr std::int64_t kWide = 4 * 8 * kFloat;
/// The model output that mse saves: batch 4, width 2.
constexpr std::int64_t kOutput = 4 * 2 * kFloat;

Case perceptron() {
  return case_of({4, 3}, {dense(8), layer("gelu"), dense(8), layer("gelu"), dense(2)});
}

TEST_CASE("a plain perceptron saves the operand of each gelu and linear, but not the model input") {
  const Forecast f = forecast_of(perceptron());
  CHECK(f.saved_bytes == 4 * kWide + kOutput);
  CHECK(f.plain_saved_bytes == f.saved_bytes);
}

TEST_CASE("an embedding saves nothing beside the tokens, which the model input holds anyway") {
  LayerSpec embedding = layer("embedding");
  embedding.features = 8;
  embedding.vocabulary = 5;
  Case c = case_of({4, 3}, {embedding, layer("flatten"), dense(2)});
  c.protocol.input_requires_grad = false;
  // The operand of the linear layer, and what the loss saves.
  CHECK(forecast_of(c).saved_bytes == 4 * 24 * 4 + kOutput);
  c.plan.offload = true;
  CHECK(forecast_of(c).offloaded_bytes == 4 * 24 * 4);
}

TEST_CASE("a storage that several nodes save counts once") {
  Case c = case_of({4, 3}, {dense(8), layer("relu"), dense(2)});
  CHECK(forecast_of(c).saved_bytes == kWide + kOutput);
  c.layers[1].in_place = true;
  CHECK(forecast_of(c).saved_bytes == kWide + kOutput);
}

TEST_CASE("a non-reentrant segment keeps its inputs alone") {
  Case c = perceptron();
  c.plan.segments = {segment(0, 2, Variant::non_reentrant), segment(2, 4, Variant::non_reentrant)};
  const Forecast f = forecast_of(c);
  CHECK(f.saved_bytes == 2 * kWide + kOutput);
  CHECK(f.plain_saved_bytes == 4 * kWide + kOutput);
}

TEST_CASE("a sequential plan saves the segment inputs and what the stored last segment saves") {
  Case c = perceptron();
  c.plan.sequential = SequentialSpec{2, true, {}};
  CHECK(forecast_of(c).saved_bytes == 3 * kWide + kOutput);
  c.plan.sequential->last_stored = false;
  CHECK(forecast_of(c).saved_bytes == kWide + kOutput);
}

TEST_CASE("a reentrant segment keeps every tensor input once one of them requires grad") {
  Case c = perceptron();
  c.plan.segments = {segment(0, 2, Variant::reentrant), segment(2, 4, Variant::reentrant)};
  c.protocol.input_requires_grad = true;
  CHECK(forecast_of(c).saved_bytes == 2 * kWide + kOutput);

  // Without it both are frozen, and the plain reference trains the last layer only.
  c.protocol.input_requires_grad = false;
  const Forecast f = forecast_of(c);
  CHECK(f.saved_bytes == kWide + kOutput);
  CHECK(f.plain_saved_bytes == kWide + kOutput);
}

TEST_CASE("a segment that saves nothing keeps nothing") {
  Case c = case_of({4, 3}, {dense(8), layer("avg_pool2d"), dense(2)});
  c.layers[1] = joined("add", {0, 0});
  c.plan.segments = {segment(1, 2, Variant::non_reentrant)};
  CHECK(forecast_of(c).saved_bytes == kWide + kOutput);
}

TEST_CASE("an outer segment keeps nothing for inner ones that saved nothing") {
  Case c = tanh_chain(3);
  c.protocol.input_requires_grad = false;
  c.layers.push_back(dense(2));
  c.plan.segments = {
      segment(1, 3, Variant::non_reentrant, {segment(1, 2, Variant::non_reentrant)})};
  // The last linear saves its operand [2, 3], mse the output [2, 2].
  CHECK(forecast_of(c).saved_bytes == (2 * 3 + 2 * 2) * kFloat);
}

TEST_CASE("a value that skips over a segment is an input of it") {
  Case c = case_of({4, 3}, {dense(8), dense(8), layer("gelu"), dense(8), joined("add", {0, 0})});
  c.plan.segments = {segment(2, 3, Variant::non_reentrant)};
  // Layer 1 saves value 0, the frame values 0 and 1, layer 3 its operand, mse the sum.
  CHECK(forecast_of(c).saved_bytes == 4 * kWide);
}

TEST_CASE("masks take a byte an element, indices four, statistics one number a channel or row") {
  const std::int64_t image = 2 * 3 * 4 * 4;
  const auto bytes = [](LayerSpec spec) {
    if (spec.kind == layer_kind("max_pool2d")) spec.kernel = spec.stride = 2;
    Case c = case_of({2, 3, 4, 4}, {std::move(spec)});
    c.protocol.input_requires_grad = true;
    return forecast_of(c).saved_bytes;
  };
  CHECK(bytes(layer("dropout")) == image + image * kFloat);
  CHECK(bytes(layer("max_pool2d")) == image / 4 * 4 + image / 4 * kFloat);
  CHECK(bytes(layer("batch_norm")) == 2 * 3 * kFloat + image * kFloat);
  CHECK(bytes(layer("layer_norm")) == 2 * (2 * 3 * 4) * kFloat + image * kFloat);
  CHECK(bytes(layer("group_norm")) == 2 * 2 * kFloat + image * kFloat);
  CHECK(bytes(layer("rms_norm")) == (2 * 3 * 4) * kFloat + image * kFloat);
  CHECK(bytes(layer("silu")) == image * kFloat);
  CHECK(bytes(layer("rrelu")) == 2 * image * kFloat);
  CHECK(bytes(layer("gelu")) == image * kFloat);
  CHECK(bytes(layer("softmax")) == image * kFloat);
}

TEST_CASE(
    "cross entropy saves log-probabilities instead of the output, doubles take twice as much") {
  Case c = case_of({4, 3}, {dense(2)});
  c.protocol.loss = LossKind::cross_entropy;
  CHECK(forecast_of(c).saved_bytes == kOutput);
  c.dtype = DType::float64;
  CHECK(forecast_of(c).saved_bytes == 2 * kOutput);
}

TEST_CASE("layers without effect in eval mode cost nothing") {
  Case c = case_of({4, 3}, {dense(8), layer("dropout"), dense(2)});
  CHECK(forecast_of(c).saved_bytes == 4 * 8 + kWide + kOutput);
  CHECK(forecast_of(c).draws_per_forward == std::vector<std::uint64_t>{32});
  c.protocol.train = false;
  CHECK(forecast_of(c).saved_bytes == kWide + kOutput);
  CHECK(forecast_of(c).draws_per_forward == std::vector<std::uint64_t>{0});
}

TEST_CASE("a draw takes whole blocks of four") {
  const Case c = case_of({5, 3}, {layer("dropout"), dense(1), layer("rrelu")});
  const Forecast f = forecast_of(c);
  CHECK(f.layer_draws == std::vector<std::uint64_t>{16, 0, 8});
  CHECK(f.draws_per_forward == std::vector<std::uint64_t>{24});
}

}  // namespace
}  // namespace rematch
