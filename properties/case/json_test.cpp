#include "properties/case/json.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <limits>
#include <stdexcept>
#include <string>

#include "properties/generate/mix.h"
#include "properties/layers/draw_source.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

void rejects(const std::string& text, const std::string& words) {
  INFO(text.substr(0, 200));
  CHECK_THROWS_MATCHES(case_from_json(text), std::invalid_argument,
                       MessageMatches(ContainsSubstring("[case]") && ContainsSubstring(words)));
}

/// A valid text with `fields` added to it.
std::string with_fields(const std::string& fields) {
  return R"({"format": 1, "input": [2, 3], "layers": [{"kind": "relu"}])" + fields + "}";
}

std::string with_layer(const std::string& layer) {
  return R"({"format": 1, "input": [2, 3], "layers": [)" + layer + "]}";
}

std::string repeated(const std::string& piece, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += piece;
  return text;
}

}  // namespace

TEST_CASE("a case survives the way to JSON and back") {
  for (const Mix mix : {Mix::standard, Mix::wide}) {
    for (std::uint64_t i = 0; i < 2000; ++i) {
      const Case c = generate_case(mix, 3, i);
      const std::string text = to_json(c);
      INFO(text);
      REQUIRE(case_from_json(text) == c);
    }
  }
}

TEST_CASE("a text may say what its case was found with, beside the case") {
  const Case c = generate_case(Mix::standard, 3, 0);
  const Options said{{"profile", "none"}, {"subject", "sh -c \"a\nb\""}};
  Options read{{"subject", "of another file"}};
  CHECK(case_from_json(to_json(c, said), &read) == c);
  CHECK(read == said);
  CHECK(case_from_json(to_json(c, said)) == c);
  CHECK(case_from_json(to_json(c), &read) == c);
  CHECK(read.empty());
  rejects(with_fields(", \"found_with\": \"pytorch\""), "found_with: expected an object");
  rejects(with_fields(", \"found_with\": {\"subject\": 1}"), "found_with.subject: expected text");
}

TEST_CASE("the whole range of a seed survives, as a number or as text") {
  Case c = generate_case(Mix::standard, 0, 0);
  for (const std::uint64_t seed :
       {std::uint64_t{0}, std::uint64_t{1} << 53, (std::uint64_t{1} << 53) + 1,
        std::uint64_t{1} << 63, std::numeric_limits<std::uint64_t>::max()}) {
    c.seed = seed;
    CHECK(case_from_json(to_json(c)).seed == seed);
    CHECK(case_from_json(with_fields(", \"seed\": " + std::to_string(seed))).seed == seed);
  }
}

TEST_CASE("every field survives when it is unusual") {
  const std::string text = R"({
  "format": 1,
  "seed": "18446744073709551615",
  "dtype": "float64",
  "data": "small_integers",
  "input": [2, 3, 4, 4],
  "layers": [
    {"kind": "conv2d", "features": 3, "kernel": 3, "stride": 2, "padding": 1, "bias": false, "frozen": true},
    {"kind": "relu", "in_place": true},
    {"kind": "conv2d", "features": 3, "kernel": 3, "bias": false, "frozen": true, "padding": 1, "tied_to": 0},
    {"kind": "dropout", "p": 0.1},
    {"kind": "duplicate"},
    {"kind": "add", "from": [4, 1]},
    {"kind": "flatten"},
    {"kind": "linear", "features": 2}
  ],
  "plan": {"segments": [
    {"begin": 0, "end": 2, "variant": "reentrant", "preserve_rng": false},
    {"begin": 3, "end": 6, "variant": "non_reentrant", "early_stop": false, "nested": [
      {"begin": 4, "end": 5, "variant": "non_reentrant", "determinism": "values"}
    ]}
  ]},
  "protocol": {"steps": 2, "microbatches": 3, "forwards_first": true, "backwards": 2, "prior_gradients": true,
    "zero_grad": false, "train": false, "input_requires_grad": true, "loss": "cross_entropy",
    "optimizer": "sgd", "learning_rate": 1e-3, "momentum": 0.9, "reevaluate": true}
})";
  const Case c = case_from_json(text);
  CHECK(c.layers[2].tied_to == 0);
  CHECK(c.plan.segments[1].nested[0].choice.determinism == CheckKind::values);
  CHECK(c.protocol.learning_rate == 1e-3);
  CHECK(case_from_json(to_json(c)) == c);
}

TEST_CASE("autocast and offload survive, and say what is wrong with them") {
  const std::string text =
      R"({"format": 1, "input": [2, 3], "layers": [{"kind": "linear", "features": 2}],
    "plan": {"offload": true}, "protocol": {"autocast": "both", "cast_cache": false}})";
  const Case c = case_from_json(text);
  CHECK(c.plan.offload);
  CHECK(c.protocol.autocast == AutocastSpan::both);
  CHECK_FALSE(c.protocol.cast_cache);
  CHECK(case_from_json(to_json(c)) == c);
  rejects(R"({"format": 1, "dtype": "float64")" + text.substr(text.find(", \"input\"")),
          "autocast belongs to float32");
  rejects(with_fields(R"(, "protocol": {"cast_cache": false})"), "cast_cache belongs to autocast");
  rejects(with_fields(R"(, "protocol": {"inject": "recomputation_throws", "inject_layer": 99})"),
          "inject_layer");
  rejects(with_fields(R"(, "protocol": {"inject": "graph_dropped", "inject_layer": 1})"),
          "inject_layer");
  rejects(with_fields(R"(, "protocol": {"inject": "earthquake"})"), "inject");
  rejects(with_fields(R"(, "protocol": {"autocast": "on"})"), "one of off, forward, both");
}

TEST_CASE(
    "fields and values are read by the names that they had before, and written by the new ones") {
  const Case c = case_from_json(
      with_fields(R"(, "protocol": {"mishap": "replay_throws", "mishap_layer": 0})"));
  CHECK(c.protocol.failure == InjectedFailure{FailureKind::recomputation_throws, 0});
  CHECK(to_json(c).find(R"("inject": "recomputation_throws")") != std::string::npos);
  rejects(with_fields(R"(, "protocol": {"inject": "none", "mishap": "none"})"), "unknown field");
}

TEST_CASE("policies and named streams survive, and say what is wrong with them") {
  const std::string text = R"({"format": 1, "input": [2, 3],
    "layers": [{"kind": "dropout", "p": 0.5, "stream": 3}, {"kind": "tanh"}],
    "plan": {"segments": [{"begin": 0, "end": 2, "keep": [{"op": "dropout", "index": 0}, {"op": "tanh"}]}]}})";
  const Case c = case_from_json(text);
  CHECK(c.layers[0].stream == 3);
  CHECK(c.plan.segments[0].choice.keep == std::vector<KeepSpec>{{"dropout", 0}, {"tanh", -1}});
  CHECK(case_from_json(to_json(c)) == c);
  const auto with = [&](std::string_view old, std::string_view replaced) {
    std::string edited = text;
    return edited.replace(edited.find(old), old.size(), replaced);
  };
  rejects(with(R"("op": "tanh")", R"("op": "flatten")"),
          "keep[1].op: expected an op that computes");
  rejects(with(R"("op": "tanh")", R"("index": 1)"), "plan.segments[0].keep[1].op");
  rejects(with(R"("index": 0)", R"("index": -2)"), "index, expected -1 or more, got -2");
  rejects(with(R"("end": 2,)", R"("end": 2, "variant": "reentrant",)"),
          "keep belongs to the non_reentrant");
  rejects(with(R"("end": 2,)", R"("end": 2, "nested": [{"begin": 0, "end": 1}],)"),
          "keeps results, expected no nested segments");
  rejects(with(R"("stream": 3)", R"("stream": 256)"),
          "layer 0 (dropout): expected stream in 0..255, got 256");
  rejects(with(R"({"kind": "tanh"})", R"({"kind": "tanh", "stream": 1})"), "stream does not apply");
  rejects(with(R"("plan")", R"("protocol": {"backwards": 2}, "plan")"), "serves one backward");
}

TEST_CASE("how segments are handed their tensors survives, and says what is wrong with it") {
  const auto with = [](const std::string& fields) {
    return R"({"format": 1, "input": [2, 3], "layers": [{"kind": "tanh"}],
               "plan": {"segments": [{"begin": 0, "end": 1)" +
           fields + "}]}}";
  };
  const auto choice = [&](const std::string& fields) {
    const Case c = case_from_json(with(fields));
    CHECK(case_from_json(to_json(c)) == c);
    return c.plan.segments[0].choice;
  };
  CHECK(choice("").arguments == Arguments::tensors);
  CHECK(choice(R"(, "arguments": "dictionary")").arguments == Arguments::dictionary);
  CHECK(choice(R"(, "arguments": "keywords")").arguments == Arguments::keywords);
  CHECK(choice(R"(, "arguments": "emptied", "variant": "reentrant")").arguments ==
        Arguments::emptied);
  CHECK(choice(R"(, "nested_outputs": true)").nested_outputs);
  // Its name when there was one form.
  CHECK(choice(R"(, "nested_inputs": true)").arguments == Arguments::dictionary);
  CHECK(choice(R"(, "nested_inputs": false)").arguments == Arguments::tensors);
  rejects(with(R"(, "arguments": "tuple")"),
          "arguments: expected one of tensors, dictionary, keywords, emptied");
  rejects(with(R"(, "arguments": "keywords", "variant": "reentrant")"),
          "arguments by keyword belong to the non_reentrant variant");
}

TEST_CASE("a promise of a plan survives, and says what is wrong with it") {
  const std::string text = R"({"format": 1, "input": [1, 2], "layers": [{"kind": "tanh"}],
      "plan": {"segments": [{"begin": 0, "end": 1}], "promise": {"peak_bytes": 5000000000}}})";
  const Case c = case_from_json(text);
  CHECK(c.plan.promise == PromiseSpec{5000000000, PromiseSpec::kNone});
  CHECK(case_from_json(to_json(c)) == c);
  CHECK(to_json(c).find(R"("promise": {"peak_bytes": 5000000000})") != std::string::npos);
  std::string negative = text;
  negative.replace(negative.find("5000000000"), 10, "-2");
  rejects(negative, "plan.promise, expected numbers from 0 on, got -2");
}

TEST_CASE("options survive, and say what is wrong with them") {
  const Case c = case_from_json(
      with_fields(R"(, "options": {"promise": "early_stop", "mode": "a \"quoted\" one"})"));
  CHECK(c.options == Options{{"mode", "a \"quoted\" one"}, {"promise", "early_stop"}});
  CHECK(case_from_json(to_json(c)) == c);
  CHECK(case_from_json(with_fields("")).options.empty());
  rejects(with_fields(R"(, "options": ["mode"])"), "options: expected an object");
  rejects(with_fields(R"(, "options": {"mode": 3})"), "options.mode: expected text, got 3");
  rejects(with_fields(R"(, "options": {"mode": "two\nlines"})"), "options.mode: expected one line");
  rejects(with_fields(R"(, "options": {"": "none"})"), "options: expected one line");
}

TEST_CASE("a case written by another version is refused by its number") {
  rejects(R"({"format": 2})", "format: expected 1, got 2, which a newer program wrote");
  rejects(R"({"format": 0})", "format: expected 1, got 0, which this program no longer reads");
  rejects(R"({"format": "1"})", "format: expected an integer");
  rejects("{}", "format: expected 1, got none: this is no case");
}

TEST_CASE("an unknown, doubled or missing field is refused by its path") {
  rejects(with_fields(R"(, "colour": 1)"), "unknown field \"colour\"");
  rejects(with_layer(R"({"kind": "relu", "inplace": true})"), "layers[0]: expected known fields");
  rejects(with_layer(R"({"kind": "relu", "kind": "tanh"})"), "\"kind\": expected each field once");
  rejects(with_fields(R"(, "plan": {"sequential": {"segment": 1}})"), "plan.sequential.segments");
  rejects(with_fields(R"(, "plan": {"segments": [{"begin": 0}]})"), "plan.segments[0].end");
  rejects(with_layer("{}"), "layers[0].kind: expected a kind of layer, got none");
  rejects(R"({"format": 1, "layers": []})", "input: expected a value");
}

TEST_CASE("a value of the wrong type or range is refused by its path") {
  rejects(with_layer(R"({"kind": "linear", "features": 2.5})"),
          "layers[0].features: expected an integer, got 2.5");
  rejects(with_layer(R"({"kind": "linear", "features": 1e3})"), "layers[0].features");
  rejects(with_layer(R"({"kind": "linear", "features": -4})"), "layer 0 (linear)");
  rejects(with_layer(R"({"kind": "linear", "features": 9223372036854775808})"),
          "layers[0].features: expected an integer in");
  rejects(with_layer(R"({"kind": "linear", "features": 123456789012345678901234567890})"),
          "layers[0].features: expected an integer");
  rejects(with_layer(R"({"kind": "linear", "features": "4"})"), "layers[0].features");
  rejects(with_layer(R"({"kind": "convolution"})"),
          "layers[0].kind: expected one of embedding, linear,");
  rejects(with_layer(R"({"kind": "dropuot"})"),
          "layers[0].kind: expected a kind of layer, such as dropout, got \"dropuot\"");
  rejects(with_layer(R"({"kind": "relu", "in_place": 1})"), "expected true or false, got 1");
  rejects(with_layer(R"({"kind": "add", "from": [0]})"),
          "layers[0].from: expected [layer, output]");
  rejects(with_layer("7"), "layers[0]: expected an object, got 7");
  rejects(with_fields(R"(, "seed": -1)"), "seed: expected an integer in 0..");
  rejects(with_fields(R"(, "seed": "0x10")"), "seed: expected decimal digits");
  rejects(with_fields(R"(, "seed": "18446744073709551616")"), "seed: expected decimal digits");
  rejects(with_fields(R"(, "dtype": "int32")"), "dtype: expected one of float32, float64");
  rejects(with_fields(R"(, "protocol": {"learning_rate": -1})"), "protocol: learning_rate");
  rejects(with_fields(R"(, "protocol": {"steps": 4000000000})"), "protocol.steps");
  rejects(with_fields(R"(, "plan": {"sequential": {"segments": 1000000000}})"), "expected 1..1");
}

TEST_CASE("text that is not JSON is refused with its place") {
  for (const char* text : {"", "{", "nonsense", "[1, 2", "{\"format\": NaN}", "{\"format\": 1e999}",
                           "\xff\xfe", "{\"format\": 1} x", "{\"format\": 1,}"}) {
    rejects(text, "text: expected JSON");
  }
  rejects("[]", "text: expected an object");
}

TEST_CASE("a hostile text is refused before it costs memory or stack") {
  rejects(repeated("[", 1 << 20), "levels of nesting");
  rejects(repeated("{\"a\":", 1 << 18), "levels of nesting");
  rejects(std::string(kMaxCaseTextBytes + 1, ' '), "at most 4194304 bytes");
  rejects(with_fields(", \"x\": \"" + repeated("\\u0000", 100000) + "\""), "unknown field");
  rejects(with_layer(repeated(R"({"kind":"relu"},)", 5000) + R"({"kind":"relu"})"),
          "layers: expected at most 4096 elements");
  rejects(with_layer(repeated("0,", 1000000) + "0"), "layers: expected at most 4096 elements");
  rejects(R"({"format": 1, "input": [1000000000000, 1000000000000], "layers": [{"kind": "relu"}]})",
          "input: expected extents in");
  std::string nested = R"({"begin": 0, "end": 1})";
  for (int i = 0; i < 100; ++i) {
    nested.insert(0, R"({"begin": 0, "end": 1, "nested": [)").append("]}");
  }
  rejects(with_fields(R"(, "plan": {"segments": [)" + nested + "]}"), "nested too deeply");
}

TEST_CASE("a text with damaged bytes is read as a valid case or refused as an invalid argument") {
  DrawSource draw(17, 0);
  int refused = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    std::string text = to_json(generate_case(Mix::wide, 17, i % 100));
    const int damages = draw.range(1, 3);
    for (int k = 0; k < damages; ++k) {
      const std::size_t at = draw.below(static_cast<std::uint32_t>(text.size()));
      switch (draw.below(4)) {
        case 0:
          text[at] = static_cast<char>(draw.below(256));
          break;
        case 1:
          text.erase(at, draw.below(8));
          break;
        case 2:
          text.insert(at, text.substr(draw.below(static_cast<std::uint32_t>(text.size())), 12));
          break;
        default:
          text[at] = static_cast<char>('0' + draw.below(10));
      }
    }
    INFO(text);
    try {
      const Case c = case_from_json(text);
      REQUIRE(case_from_json(to_json(c)) == c);
    } catch (const std::invalid_argument& e) {
      ++refused;
      REQUIRE(std::string(e.what()).starts_with("[case] "));
    }
  }
  CHECK(refused > 10000);
}

TEST_CASE("a case that no model can run is refused on reading") {
  rejects(with_layer(R"({"kind": "conv2d", "features": 1, "kernel": 3})"),
          "layer 0 (conv2d): expected an input of rank 4");
}

}  // namespace rematch
