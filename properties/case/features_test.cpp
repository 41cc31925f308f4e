#include "properties/case/features.h"

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>

#include "properties/case/json.h"

namespace rematch {
namespace {

bool has(const Case& c, Feature feature) { return features_of(c, validate(c)).contains(feature); }

Case read(const std::string& layers, const std::string& plan, const std::string& protocol = "") {
  return case_from_json(R"({"format": 1, "input": [2, 4], "layers": [)" + layers +
                        R"(], "plan": )" + plan + R"(, "protocol": {)" + protocol + "}}");
}

const std::string kLinear = R"({"kind": "linear", "features": 4})";
const std::string kRelu = R"({"kind": "relu"})";

}  // namespace

TEST_CASE("every feature has a name of its own, layer kinds theirs") {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kFeatureCount; ++i) names.insert(to_string(Feature(i)));
  CHECK(names.size() == kFeatureCount);
  for (std::size_t i = 0; i < kLayerKinds; ++i) {
    CHECK(to_string(Feature(i)) == to_string(LayerKind(i)));
  }
  // The names of the others lie in a list beside the enum: these stand at its corners.
  CHECK(to_string(Feature::frozen_first_block) == "frozen_first_block");
  CHECK(to_string(Feature::offload) == "offload");
  CHECK(to_string(Feature::small_integers) == "small_integers");
  CHECK(feature_named("nested_3") == Feature::nested_3);
  CHECK_FALSE(feature_named("no_such_feature"));
}

TEST_CASE("a reentrant segment on a frozen input is a frozen first block, others are not") {
  const std::string layers = kLinear + "," + kRelu + "," + kLinear;
  const std::string reentrant = R"({"sequential": {"segments": 2, "variant": "reentrant"}})";
  const std::string other = R"({"sequential": {"segments": 2, "variant": "non_reentrant"}})";
  CHECK(has(read(layers, reentrant), Feature::frozen_first_block));
  CHECK_FALSE(has(read(layers, other), Feature::frozen_first_block));
  CHECK_FALSE(
      has(read(layers, reentrant, R"("input_requires_grad": true)"), Feature::frozen_first_block));
  CHECK_FALSE(has(read(layers, R"({"segments": [{"begin": 1, "end": 3, "variant": "reentrant"}]})"),
                  Feature::frozen_first_block));
}

TEST_CASE("nothing trains where no parameter is trainable, whatever the input") {
  const std::string plan = R"({"segments": [{"begin": 0, "end": 1}]})";
  const std::string frozen = R"({"kind": "linear", "features": 4, "frozen": true})";
  for (const std::string& layers : {kRelu, frozen}) {
    CHECK(has(read(layers, plan), Feature::nothing_trains));
    CHECK(has(read(layers, plan, R"("input_requires_grad": true)"), Feature::nothing_trains));
    CHECK_FALSE(has(read(layers + "," + kLinear, plan), Feature::nothing_trains));
  }
}

TEST_CASE("a batch of one has one row, whatever its width") {
  Case c = read(kLinear, R"({"segments": [{"begin": 0, "end": 1}]})");
  CHECK_FALSE(has(c, Feature::one_row));
  c.input = {1, 4};
  CHECK(has(c, Feature::one_row));
}

TEST_CASE("a reentrant segment deep in a non-reentrant one can be a frozen block") {
  CHECK(has(read(kRelu + "," + kLinear, R"({"segments": [{"begin": 0, "end": 2, "nested": [
                 {"begin": 1, "end": 2, "variant": "reentrant"}]}]})"),
            Feature::frozen_first_block));
}

TEST_CASE("a skip is long when it passes three parts of the plan") {
  const std::string skip = R"({"kind": "add", "from": [-1, 0]})";
  const std::string layers = kRelu + "," + kRelu + "," + kRelu + "," + skip;
  CHECK(has(read(layers, R"({"sequential": {"segments": 4}})"), Feature::long_skip));
  CHECK(has(read(layers, R"({"segments": [{"begin": 0, "end": 1}, {"begin": 2, "end": 3}]})"),
            Feature::long_skip));
  CHECK_FALSE(has(read(layers, R"({"sequential": {"segments": 2}})"), Feature::long_skip));
}

TEST_CASE("outputs of a segment count, the stored last part does not") {
  const std::string layers = R"({"kind": "split", "features": 1},)" + kRelu;
  CHECK(has(read(layers, R"({"segments": [{"begin": 0, "end": 1}]})"),
            Feature::multi_output_segment));
  CHECK_FALSE(
      has(read(layers, R"({"sequential": {"segments": 1}})"), Feature::multi_output_segment));
  CHECK(has(read(layers, "{}"), Feature::unused_output));
  CHECK_FALSE(
      has(read(layers + R"(,{"kind": "concat", "from": [0, 1]})", "{}"), Feature::unused_output));
}

TEST_CASE("draws count where they happen") {
  const std::string layers = R"({"kind": "dropout", "p": 0.5},)" + kRelu;
  const std::string plan = R"({"segments": [{"begin": 0, "end": 1}]})";
  CHECK(has(read(layers, plan), Feature::draws_in_checkpointed_segment));
  CHECK_FALSE(has(read(layers, plan), Feature::odd_size));
  CHECK_FALSE(has(read(layers, plan, R"("train": false)"), Feature::draws_in_checkpointed_segment));
  CHECK_FALSE(has(read(layers, R"({"segments": [{"begin": 1, "end": 2}]})"),
                  Feature::draws_in_checkpointed_segment));
}

TEST_CASE("a layer in eval mode draws nothing, and moves no state on") {
  const auto with = [](const std::string& layer, const std::string& protocol = "") {
    return read(layer, R"({"segments": [{"begin": 0, "end": 1}]})", protocol);
  };
  const std::string dropout = R"({"kind": "dropout", "p": 0.5, "eval": true})";
  CHECK(has(with(dropout), Feature::eval_layer));
  CHECK_FALSE(has(with(dropout, R"("train": false)"), Feature::eval_layer));
  CHECK_FALSE(has(with(dropout), Feature::draws_in_checkpointed_segment));
  const std::string scaled = R"({"kind": "delayed_scaling")";
  CHECK(has(with(scaled + "}"), Feature::advancing_state));
  CHECK_FALSE(has(with(scaled + R"(, "eval": true})"), Feature::advancing_state));
  CHECK_FALSE(has(with(scaled + R"(, "eval": true})"), Feature::stateful_layer));
  CHECK_FALSE(has(with(scaled + "}", R"("train": false)"), Feature::advancing_state));
  CHECK_FALSE(has(with(scaled + "}"), Feature::fp8));
  CHECK(has(with(scaled + R"(, "fp8": true})", R"("train": false)"), Feature::fp8));
}

TEST_CASE("a weight is cast for two layers where both compute in bfloat16") {
  const std::string embedding = R"({"kind": "embedding", "features": 4, "vocabulary": 4},)";
  const std::string head = R"({"kind": "linear", "features": 4, "bias": false, "tied_to": 0})";
  const std::string half = R"("autocast": "forward")";
  const std::string linear = R"({"kind": "linear", "features": 4, "bias": false},)";
  CHECK(has(read(linear + head, "{}", half), Feature::cast_weight_shared));
  CHECK_FALSE(has(read(embedding + head, "{}", half), Feature::cast_weight_shared));
  CHECK(has(read(embedding + head + "," + head, "{}", half), Feature::cast_weight_shared));
}

TEST_CASE("nesting counts its levels") {
  const Case c = read(kRelu, R"({"segments": [{"begin": 0, "end": 1, "nested": [
      {"begin": 0, "end": 1, "nested": [{"begin": 0, "end": 1}]}]}]})");
  CHECK(has(c, Feature::nested_2));
  CHECK(has(c, Feature::nested_3));
  CHECK_FALSE(has(c, Feature::nested_4));
}

TEST_CASE("each way to hand over tensors is a feature, at every level") {
  const std::string layers = kLinear + "," + kRelu;
  const auto plan = [](const std::string& fields) {
    return R"({"segments": [{"begin": 0, "end": 2, "nested": [{"begin": 0, "end": 1)" + fields +
           "}]}]}";
  };
  const Case usual = read(layers, plan(""));
  const Case dictionary = read(layers, plan(R"(, "arguments": "dictionary")"));
  const Case keywords = read(layers, plan(R"(, "arguments": "keywords")"));
  const Case emptied = read(layers, plan(R"(, "arguments": "emptied")"));
  const Case returned = read(layers, plan(R"(, "nested_outputs": true)"));
  CHECK(has(dictionary, Feature::nested_inputs));
  CHECK(has(keywords, Feature::keyword_inputs));
  CHECK(has(emptied, Feature::emptied_inputs));
  CHECK(has(returned, Feature::nested_outputs));
  for (const Case& c : {usual, keywords, emptied, returned}) {
    CHECK_FALSE(has(c, Feature::nested_inputs));
  }
  for (const Case& c : {usual, dictionary, emptied, returned}) {
    CHECK_FALSE(has(c, Feature::keyword_inputs));
  }
  for (const Case& c : {usual, dictionary, keywords, returned}) {
    CHECK_FALSE(has(c, Feature::emptied_inputs));
  }
  for (const Case& c : {usual, dictionary, keywords, emptied}) {
    CHECK_FALSE(has(c, Feature::nested_outputs));
  }
}

}  // namespace rematch
