// A known difference explains no new one beside it: for each source of each profile that comes with
// the program, a case that has it, and second bugs in the same case.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>

#include "properties/case/features.h"
#include "properties/case/json.h"
#include "properties/hunt/profile.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

/// A layer that the entry names, or one that does what it names.
std::string layer_at(const KnownDivergence& entry) {
  static const std::map<std::string, std::string> kDoing{
      {"stateful", R"({"kind": "delayed_scaling"})"},
      {"reads state", R"({"kind": "delayed_scaling"})"},
      {"draws", R"({"kind": "dropout", "p": 0.5})"},
      {"draws elsewhere", R"({"kind": "dropout", "p": 0.5, "stream": 1})"},
      {"draws behind a kept draw", R"({"kind": "gaussian_noise", "p": 0.5})"},
      {"casts", R"({"kind": "linear", "features": 3})"},
      {"shares a cast", R"({"kind": "linear", "features": 3, "tied_to": 0})"},
      {"linear", R"({"kind": "linear", "features": 3})"},
      {"lstm", R"({"kind": "lstm", "features": 3})"}};
  if (entry.at.empty()) return kDoing.at("linear");
  const auto known = kDoing.find(entry.at.front());
  if (known != kDoing.end()) return known->second;
  const auto custom = std::find_if(entry.at.begin(), entry.at.end(), [](const std::string& name) {
    try {
      const Case c = case_from_json(
          fmt::format(R"({{"format": 1, "input": [1, 1], "layers": [{{"kind": "{}"}}]}})", name));
      return false;
    } catch (const std::invalid_argument&) {
      return true;
    }
  });
  if (custom == entry.at.end()) return fmt::format(R"({{"kind": "{}"}})", entry.at.front());
  return fmt::format(
      R"({{"kind": "custom", "layer": "{}: N ... -> N ...; parameters, draws, state"}})", *custom);
}

/// linear, dropout, the layer, linear: one segment; behind it a linear layer that is in none.
Case case_of(const KnownDivergence& entry) {
  const std::string in = entry.in.empty() ? "non_reentrant" : entry.in.front();
  const auto says = [&](std::string_view word) { return in.find(word) != std::string::npos; };
  const bool reentrant = says("reentrant") && !says("non_reentrant");
  std::string segment = fmt::format(R"("begin": 0, "end": 4, "variant": "{}")",
                                    reentrant ? "reentrant" : "non_reentrant");
  if (says("selective")) segment += R"(, "keep": [{"op": "dropout"}])";
  if (says("fresh")) segment += R"(, "preserve_rng": false)";
  for (const std::string_view form : {"dictionary", "keywords", "emptied"}) {
    if (says(form) && !says("dictionary_outputs")) {
      segment += fmt::format(R"(, "arguments": "{}")", form);
    }
  }
  if (says("dictionary_outputs")) segment += R"(, "nested_outputs": true)";
  if (says("nested")) segment += ", \"nested\": [{" + segment + "}]";
  return case_from_json(fmt::format(
      R"({{"format": 1, "seed": 3, "input": [4, 3, 3], "layers": [
          {{"kind": "linear", "features": 3}}, {{"kind": "dropout", "p": 0.5}}, {},
          {{"kind": "linear", "features": 3}}, {{"kind": "linear", "features": 3}}],
          "plan": {{"segments": [{{{}}}]}}, "protocol": {{"input_requires_grad": true}}}})",
      layer_at(entry), segment));
}

/// The entry, whatever else it says of the case.
Profile alone(KnownDivergence entry) {
  entry.when = entry.unless = entry.any = {};
  entry.inject = {};
  entry.options = {};
  entry.versions = {};
  entry.got = {};
  entry.at_most = {};
  entry.faults = {};
  entry.drops_nothing = false;
  return Profile({std::move(entry)});
}

bool has(const KnownDivergence& entry, std::initializer_list<Wrong> any) {
  return std::find_first_of(entry.wrong.begin(), entry.wrong.end(), any.begin(), any.end()) !=
         entry.wrong.end();
}

template <class Check>
void for_each_entry(Check check) {
  const std::filesystem::path folder = REMATCH_SOURCE_DIR "/properties/python/rematch/frameworks";
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    if (!file.path().filename().string().starts_with("profile")) continue;
    const Profile profile = load_profile(file.path());
    for (const KnownDivergence& entry : profile.entries()) {
      INFO(file.path().string() << ": " << entry.id);
      check(entry);
    }
  }
}

}  // namespace

TEST_CASE("beside the source of a known difference another one is new") {
  int sources = 0;
  for_each_entry([&](const KnownDivergence& entry) {
    if (entry.wrong.empty()) return;
    ++sources;
    const Case c = case_of(entry);
    const Profile profile = alone(entry);
    const auto is_new = [&](std::string_view law, const std::string& place) {
      return !profile.explains({law, place, "1", "2"}, c, {}).has_value();
    };
    const std::vector<bool> sites = sites_of(entry.at, entry.in, c, validate(c));
    CHECK(sites.at(2));
    const std::string layer = "step 0, microbatch 0, layer ";
    // What flows into the segment, and what its forward returned, unless it is the forward.
    const bool runs = has(entry, {Wrong::runs, Wrong::zeros, Wrong::detached});
    CHECK((sites.at(0) || runs || is_new("recomputed-values", layer + "0 (linear)")));
    CHECK((sites.at(1) || runs || is_new("dropout-masks", layer + "1 (dropout)")));
    CHECK((has(entry, {Wrong::forward}) || is_new("outputs", "step 0, microbatch 0, output 0")));
    // Behind the segment.
    const int last = static_cast<int>(validate(c).parameters.size()) - 1;
    const std::string behind =
        fmt::format("step 0, gradient of parameter {} (layer 4 linear bias)", last);
    const bool crosses = has(entry, {Wrong::compiled});
    const bool reaches = sites.at(4) || crosses || has(entry, {Wrong::forward});
    CHECK((reaches || is_new("parameter-gradients", behind)));
    CHECK((has(entry, {Wrong::detached}) || is_new("executions", layer + "4 (linear)")));
    // Of another kind.
    CHECK(is_new("live-bytes", "step 0"));
    CHECK((has(entry, {Wrong::held}) || is_new("held-in-backward", "step 0")));
    const auto& laws = entry.laws;
    const bool fires = has(entry, {Wrong::detached, Wrong::zeros}) ||
                       std::find(laws.begin(), laws.end(), "hooks") != laws.end();
    CHECK((fires || is_new("hooks", "step 0, microbatch 0, parameter 0")));
  });
  CHECK(sources > 60);
}

TEST_CASE("an entry without a source says which laws, and where it can, which words") {
  for_each_entry([](const KnownDivergence& entry) {
    CHECK(entry.laws.size() <= 3);
    if (!entry.wrong.empty() || entry.got.empty()) return;
    KnownDivergence said = entry;
    said.when = said.unless = said.any = {};
    said.at = said.in = {};
    said.options = {};
    said.versions = {};
    for (const std::string& law : entry.laws) {
      const Violation other{find_law(law)->name, "", "another text", "something else"};
      CHECK_FALSE(Profile({said}).explains(other, Case{}, {}).has_value());
    }
  });
}

}  // namespace rematch
