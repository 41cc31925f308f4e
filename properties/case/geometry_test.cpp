#include "properties/case/geometry.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <limits>
#include <stdexcept>
#include <string>

#include "properties/layers/layer.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

LayerSpec bare_layer(std::string_view kind, std::int64_t features = 0) {
  LayerSpec l;
  l.kind = layer_kind(kind);
  l.features = features;
  return l;
}

LayerSpec window(std::string_view kind, std::int64_t features, std::int64_t kernel) {
  LayerSpec l = bare_layer(kind, features);
  l.kernel = kernel;
  return l;
}

LayerSpec from(std::string_view kind, int source, int output = 0) {
  LayerSpec l = bare_layer(kind);
  l.from = {ValueRef{source, output}};
  return l;
}

LayerSpec in_place_relu() {
  LayerSpec l = bare_layer("relu");
  l.in_place = true;
  return l;
}

LayerSpec tied_kind(std::string_view kind, std::int64_t features, int owner) {
  LayerSpec l = bare_layer(kind, features);
  l.tied_to = owner;
  return l;
}

Case model(std::vector<std::int64_t> input, std::vector<LayerSpec> layers) {
  Case c;
  c.input = std::move(input);
  c.layers = std::move(layers);
  return c;
}

Case four_layers() {
  return model({2, 3}, {bare_layer("linear", 3), bare_layer("relu"), bare_layer("linear", 3),
                        bare_layer("relu")});
}

void rejects(const Case& c, const std::string& words) {
  INFO(words);
  CHECK_THROWS_MATCHES(validate(c), std::invalid_argument,
                       MessageMatches(ContainsSubstring("[case]") && ContainsSubstring(words)));
}

}  // namespace

TEST_CASE("geometry lists shapes, parameters and buffers in layer order") {
  Case c = model({2, 3, 5, 4},
                 {window("conv2d", 6, 3), bare_layer("batch_norm"), window("max_pool2d", 0, 2),
                  bare_layer("flatten"), bare_layer("linear", 4)});
  c.layers[0].padding = 1;
  c.layers[2].stride = 2;
  const Geometry g = validate(c);
  CHECK(g.outputs[0][0] == Shape{2, 6, 5, 4});
  CHECK(g.outputs[2][0] == Shape{2, 6, 2, 2});
  CHECK(g.outputs[3][0] == Shape{2, 24});
  CHECK(g.outputs[4][0] == Shape{2, 4});
  REQUIRE(g.parameters.size() == 6);
  CHECK(g.parameters[0].shape == Shape{6, 3, 3, 3});
  CHECK(g.parameters[3].role == "bias");
  CHECK(g.parameters[4].shape == Shape{4, 24});
  REQUIRE(g.buffers.size() == 2);
  CHECK(g.buffers[1].role == "running_var");
  CHECK(g.layer_parameters[4] == std::vector{4, 5});
}

TEST_CASE("a tied layer adds no parameter and counts as a use of its owner's") {
  const Geometry g =
      validate(model({2, 3}, {bare_layer("linear", 3), bare_layer("relu"),
                              tied_kind("linear", 3, 0), tied_kind("linear", 3, 0)}));
  REQUIRE(g.parameters.size() == 2);
  CHECK(g.parameters[0].uses == 3);
  CHECK(g.layer_parameters[3] == g.layer_parameters[0]);
}

TEST_CASE("a value is live from its birth to its last use, an unused output 1 to the end") {
  // 0 split -> 1 relu -> 2 duplicate -> 3 concat from 0.1 -> 4 concat from the input
  const Geometry g =
      validate(model({2, 5}, {bare_layer("split", 2), bare_layer("relu"), bare_layer("duplicate"),
                              from("concat", 0, 1), from("concat", -1)}));
  using Values = std::vector<ValueRef>;
  CHECK(g.live[0] == Values{{-1, 0}});
  CHECK(g.live[1] == Values{{0, 0}, {-1, 0}, {0, 1}});
  CHECK(g.live[2] == Values{{1, 0}, {-1, 0}, {0, 1}});
  CHECK(g.live[3] == Values{{2, 0}, {-1, 0}, {0, 1}, {2, 1}});
  CHECK(g.live[4] == Values{{3, 0}, {-1, 0}, {2, 1}});
  CHECK(g.live[5] == Values{{4, 0}, {2, 1}});
}

TEST_CASE("both outputs of a layer are live in order when both are skips") {
  const Geometry g =
      validate(model({2, 4}, {bare_layer("split", 2), bare_layer("relu"), bare_layer("relu"),
                              from("add", 0, 0), from("add", 0, 1)}));
  CHECK(g.live[2] == std::vector<ValueRef>{{1, 0}, {0, 0}, {0, 1}});
  CHECK(g.live[4] == std::vector<ValueRef>{{3, 0}, {0, 1}});
}

TEST_CASE("a sequential plan expands to floor(n/k) layers a segment") {
  Case c = model({1, 1}, std::vector<LayerSpec>(10, bare_layer("relu")));
  c.plan.sequential = SequentialSpec{4, true, {}};
  const auto ranges = [&] {
    std::vector<std::pair<int, int>> all;
    for (const SegmentSpec& s : segments_of(c)) all.emplace_back(s.begin, s.end);
    return all;
  };
  using Ranges = std::vector<std::pair<int, int>>;
  CHECK(ranges() == Ranges{{0, 2}, {2, 4}, {4, 6}});
  c.plan.sequential->last_stored = false;
  CHECK(ranges() == Ranges{{0, 2}, {2, 4}, {4, 6}, {6, 10}});
  c.plan.sequential = SequentialSpec{1, true, {}};
  CHECK(ranges().empty());
}

TEST_CASE("a misfit of shapes is refused by the name of its layer") {
  rejects(model({2, 3}, {}), "layers: expected 1..4096 layers, got 0");
  rejects(model({2}, {bare_layer("relu")}), "input: expected [batch, width]");
  rejects(model({2, 3, 4}, {bare_layer("batch_norm")}),
          "layer 0 (batch_norm): expected an input of rank");
  rejects(model({2, 0}, {bare_layer("relu")}), "input: expected extents in 1..");
  rejects(model({2, 3}, {bare_layer("relu"), window("conv2d", 2, 3)}),
          "layer 1 (conv2d): expected an input of rank 4, got [2, 3]");
  rejects(model({2, 3, 4, 4}, {bare_layer("linear", 2)}),
          "layer 0 (linear): expected an input of rank 2");
  rejects(model({2, 3, 4, 4}, {window("conv2d", 2, 5)}),
          "layer 0 (conv2d): kernel 5 does not fit the padded input 4 x 4");
  rejects(model({2, 3}, {bare_layer("linear", 0)}), "layer 0 (linear): expected features in 1..");
  rejects(model({2, 3}, {bare_layer("split", 3)}), "layer 0 (split): expected features in 1..2");
  rejects(model({2, 3}, {bare_layer("linear", 4), from("add", -1)}),
          "layer 1 (add): expected operands of one shape, got [2, 4] and [2, 3]");
  rejects(model({2, 3}, {bare_layer("relu"), from("add", 1)}), "an output of an earlier layer");
  rejects(model({2, 3}, {bare_layer("relu"), from("add", 0, 1)}), "an output of an earlier layer");
  rejects(model({2, 3}, {bare_layer("add")}), "from: 1 further operand, got 0");
  Case grouped = model({2, 6}, {bare_layer("group_norm")});
  grouped.layers[0].groups = 4;
  rejects(grouped, "layer 0 (group_norm): expected groups that divide the 6 channels, got 4");
  grouped.layers[0].groups = 3;
  CHECK(validate(grouped).parameters[0].shape == Shape{6});
  rejects(model({1, 3}, {bare_layer("batch_norm")}), "more than one value per channel");
  rejects(model({2, 3}, {bare_layer("relu", 3)}), "layer 0 (relu): features does not apply");
}

TEST_CASE("tokens are the model's input, for the first layer alone") {
  const LayerSpec embed = [] {
    LayerSpec l = bare_layer("embedding", 4);
    l.vocabulary = 9;
    return l;
  }();
  const Case c = model({2, 3}, {embed, bare_layer("relu")});
  const Geometry g = validate(c);
  CHECK(g.outputs[0][0] == Shape{2, 3, 4});
  CHECK(g.parameters[0].shape == Shape{9, 4});
  rejects(model({2, 3, 4}, {embed}), "layer 0 (embedding): expected an input of rank 2");
  rejects(model({2, 3}, {bare_layer("relu"), embed}),
          "layer 1 (embedding): tokens are the model input");
  rejects(model({2, 3}, {embed, bare_layer("flatten"), bare_layer("linear", 3), from("add", -1)}),
          "layer 3 (add): expected from: numbers, got the model input, which is tokens");
  rejects(model({2, 3}, {bare_layer("embedding", 4)}), "expected vocabulary in 1..");
  Case wants = c;
  wants.protocol.input_requires_grad = true;
  rejects(wants, "tokens have no gradient");
  Case changed = c;
  changed.protocol.failure.kind = FailureKind::input_changed;
  rejects(changed, "expected a model whose input is numbers, got tokens");
}

TEST_CASE("a linear layer without a bias can be tied to an embedding, not the other way round") {
  LayerSpec embed = bare_layer("embedding", 4);
  embed.vocabulary = 9;
  LayerSpec head = tied_kind("linear", 9, 0);
  head.bias = false;
  const Geometry g = validate(model({2, 3}, {embed, head}));
  CHECK(g.layer_parameters[1] == std::vector<int>{0});
  CHECK(g.parameters[0].uses == 2);
  CHECK(g.outputs[1][0] == Shape{2, 3, 9});
  rejects(model({2, 3}, {embed, tied_kind("linear", 9, 0)}), "bias differs from that of layer 0");
  head.features = 8;
  rejects(model({2, 3}, {embed, head}), "the weight of layer 0 to fit, [8, 4], got [9, 4]");
  CHECK_FALSE(lends_weight(LayerKind::linear, LayerKind::embedding));
}

TEST_CASE("a tie that does not fit is refused") {
  rejects(model({2, 3}, {bare_layer("linear", 4), tied_kind("linear", 4, 0)}),
          "the weight of layer 0 to fit");
  rejects(model({2, 3}, {tied_kind("linear", 3, 0)}), "tied_to an earlier layer");
  rejects(model({2, 3}, {bare_layer("relu"), tied_kind("linear", 3, 0)}),
          "a layer of its kind, or one that lends it a weight, got relu");
  rejects(model({2, 3},
                {bare_layer("linear", 3), tied_kind("linear", 3, 0), tied_kind("linear", 3, 1)}),
          "the layer that owns the weight, 0, got 1");
  Case c = model({2, 3}, {bare_layer("linear", 3), tied_kind("linear", 3, 0)});
  c.layers[0].frozen = true;
  rejects(c, "frozen differs");
}

TEST_CASE("a number that is no number of its kind is refused") {
  for (const double p : {1.0, -0.1, std::numeric_limits<double>::quiet_NaN(),
                         std::numeric_limits<double>::infinity()}) {
    Case c = model({2, 3}, {bare_layer("dropout")});
    c.layers[0].p = p;
    rejects(c, "layer 0 (dropout): expected p in [0, 1)");
  }
  Case c = four_layers();
  c.protocol.learning_rate = std::numeric_limits<double>::infinity();
  rejects(c, "protocol: learning_rate");
  c = four_layers();
  c.protocol.momentum = std::numeric_limits<double>::quiet_NaN();
  rejects(c, "protocol: momentum");
  c = four_layers();
  c.protocol.steps = 1025;
  rejects(c, "protocol: steps, expected 1..1024, got 1025");
  c = four_layers();
  c.dtype = DType::int32;
  rejects(c, "dtype: expected float32 or float64, got int32");
}

TEST_CASE("a plan that does not lie in the model is refused") {
  const auto with = [](std::vector<SegmentSpec> segments) {
    Case c = four_layers();
    c.plan.segments = std::move(segments);
    return c;
  };
  rejects(with({{1, 1, {}, {}}}), "is empty");
  rejects(with({{1, 5, {}, {}}}), "outside the model, expected a range within [0, 4), got [1, 5)");
  rejects(with({{-1, 2, {}, {}}}), "outside the model");
  rejects(with({{0, 2, {}, {}}, {1, 3, {}, {}}}), "overlap or are out of order");
  rejects(with({{2, 3, {}, {}}, {0, 1, {}, {}}}), "overlap or are out of order");
  rejects(with({{0, 2, {}, {{1, 3, {}, {}}}}}), "a nested segment lies outside its parent");
  CheckpointChoice reentrant;
  reentrant.variant = Variant::reentrant;
  reentrant.early_stop = false;
  rejects(with({{0, 2, reentrant, {}}}), "early_stop belongs to the non_reentrant variant");

  SegmentSpec deep{0, 1, {}, {}};
  for (int i = 0; i < kMaxNesting; ++i) deep = SegmentSpec{0, 1, {}, {deep}};
  rejects(with({deep}), "nested too deeply");
  REQUIRE_NOTHROW(validate(with(deep.nested)));

  for (const int segments : {-1, 0, 5}) {
    Case c = four_layers();
    c.plan.sequential = SequentialSpec{segments, true, {}};
    rejects(c, "plan.sequential: segments, expected 1..4, got " + std::to_string(segments));
  }
  Case c = with({{0, 1, {}, {}}});
  c.plan.sequential.emplace();
  rejects(c, "sequential excludes explicit segments");
}

TEST_CASE(
    "several backwards of a forward are refused where a segment serves one, or refuses some") {
  SegmentSpec inner{0, 1, {}, {}};
  inner.choice.variant = Variant::reentrant;
  Case nested = four_layers();
  nested.plan.segments = {{0, 2, {}, {inner}}};
  Case sequential = four_layers();
  sequential.plan.sequential = SequentialSpec{2, true, inner.choice};
  for (Case c : {nested, sequential}) {
    c.protocol.partial = true;
    rejects(c, "reentrant segments refuse");
    c.protocol.partial = false;
    c.protocol.auxiliary_losses = true;
    rejects(c, "require grad whatever");
    c.protocol.input_requires_grad = true;
    CHECK_NOTHROW(validate(c));
  }
  Case keeps = four_layers();
  keeps.plan.segments = {{0, 2, {}, {}}};
  keeps.plan.segments[0].choice.keep = {{"linear", 0}};
  CHECK_NOTHROW(validate(keeps));
  keeps.protocol.partial = true;
  rejects(keeps, "serves one backward; partial");
  keeps.protocol.partial = false;
  keeps.protocol.auxiliary_losses = true;
  rejects(keeps, "serves one backward; auxiliary_losses");
}

TEST_CASE(
    "a loss is scaled where one scale belongs to all of a gradient, and no state depends on it") {
  Case c = four_layers();
  c.protocol.loss_scale = 1024;
  c.protocol.clip = 0.5;
  CHECK_NOTHROW(validate(c));
  const auto with = [&](auto change) {
    Case changed = c;
    change(changed);
    return changed;
  };
  rejects(with([](Case& d) { d.dtype = DType::float64; }), "needs float32");
  rejects(with([](Case& d) { d.protocol.optimizer = OptimizerKind::adam; }),
          "sgd without momentum");
  rejects(with([](Case& d) { d.protocol.momentum = 0.5; }), "sgd without momentum");
  rejects(with([](Case& d) { d.protocol.zero_grad = false; }), "gradients that begin with none");
  rejects(with([](Case& d) { d.protocol.prior_gradients = true; }),
          "gradients that begin with none");
  rejects(with([](Case& d) { d.protocol.loss_scale = -1; }), "a number in [0, 2^126]");
  rejects(with([](Case& d) { d.protocol.loss_scale = std::numeric_limits<double>::quiet_NaN(); }),
          "a number in [0, 2^126]");
  rejects(with([](Case& d) { d.protocol.clip = -1; }), "a number in [0, 1e6]");
}

TEST_CASE("a relu may run in place only on a fresh value that nothing else needs") {
  const auto after = [](LayerSpec before) {
    return model({2, 3}, {before, in_place_relu(), bare_layer("relu")});
  };
  REQUIRE_NOTHROW(validate(after(bare_layer("linear", 3))));
  REQUIRE_NOTHROW(validate(after(bare_layer("layer_norm"))));
  rejects(model({2, 3}, {in_place_relu()}), "overwrites the model input");
  rejects(model({2, 3}, {bare_layer("flatten"), in_place_relu()}), "overwrites the model input");
  for (const std::string_view kind :
       {"tanh", "sigmoid", "softmax", "relu", "dropout", "duplicate"}) {
    rejects(after(bare_layer(kind)), "saved or did not make");
  }
  rejects(model({2, 3}, {bare_layer("linear", 3), in_place_relu(), from("add", 0)}),
          "another layer reads");
  REQUIRE_NOTHROW(
      validate(model({2, 3}, {bare_layer("linear", 3), in_place_relu(), from("add", 1)})));

  Case c = model({2, 3, 1, 1}, {window("conv2d", 2, 1), bare_layer("flatten"), in_place_relu()});
  REQUIRE_NOTHROW(validate(c));
  c.plan.segments = {{0, 3, {}, {}}};
  REQUIRE_NOTHROW(validate(c));
  c.plan.segments = {{0, 3, {}, {{1, 3, {}, {}}}}};
  rejects(c, "overwrites the input of a segment");
  c.plan.segments = {};
  c.plan.sequential = SequentialSpec{3, false, {}};
  rejects(c, "overwrites the input of a segment");

  Case low = after(bare_layer("linear", 3));
  low.protocol.autocast = AutocastSpan::forward;
  rejects(low, "overwrites a bfloat16 value");

  Case kept = after(bare_layer("linear", 3));
  kept.plan.segments = {{0, 2, {}, {}}};
  REQUIRE_NOTHROW(validate(kept));
  kept.plan.segments[0].choice.keep = {{"linear", 0}};
  rejects(kept, "overwrites a result that a policy keeps");
  kept.plan.segments[0].choice.keep = {{"linear", 1}};
  REQUIRE_NOTHROW(validate(kept));
}

TEST_CASE("a case that asks for the moon is refused without overflow") {
  const std::int64_t huge = std::int64_t{1} << 31;
  rejects(model({huge, huge}, {bare_layer("relu")}), "input: too large");
  rejects(model({1, huge}, {bare_layer("linear", huge)}), "layer 0 (linear): too large");
  rejects(model({1, 1}, {bare_layer("linear", std::numeric_limits<std::int64_t>::max())}),
          "features");
  Case c = model({1, 1, 1, 1}, {window("conv2d", 1, 1)});
  c.layers[0].padding = huge / 4;
  rejects(c, "layer 0 (conv2d): too large");
  c.layers[0].padding = std::numeric_limits<std::int64_t>::max();
  rejects(c, "layer 0 (conv2d): expected padding");
  // Weight and output are small here, the patches that a kernel may lay out are not.
  c = model({1, 1, 1000, 1000}, {window("conv2d", 1, 2000)});
  c.layers[0].padding = 1000;
  rejects(c, "layer 0 (conv2d): too large");
  rejects(model({1 << 16, 1 << 14}, std::vector<LayerSpec>(4, bare_layer("relu"))), "too large");
  rejects(model({1, 1}, std::vector<LayerSpec>(kMaxLayers + 1, bare_layer("relu"))),
          "layers: expected");
}

}  // namespace rematch
