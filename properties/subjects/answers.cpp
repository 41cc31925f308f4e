#include "properties/subjects/answers.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "properties/case/json_fields.h"
#include "properties/case/options_json.h"
#include "properties/record/json_reader.h"

namespace rematch {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kAnswer = "subject";
constexpr int kMostAnswerNesting = 10;
constexpr std::size_t kMostAnswerBytes = std::size_t{1} << 28;
constexpr std::size_t kMostVersions = 64;
constexpr std::size_t kMostAnswerLayers = 4096;
constexpr std::uint64_t kMostCasesPerShape = 4096;
constexpr std::size_t kLongestScript = std::size_t{1} << 20;
constexpr std::size_t kLongestAnswerText = std::size_t{1} << 16;

/// The JSON of an object whose one field is `name`.
Json parse_message(std::string_view text, const char* name) {
  Json json = parse_json(kAnswer, text, kMostAnswerBytes, kMostAnswerNesting);
  if (!json.is_object() || json.size() != 1 || !json.contains(name)) {
    json_fail(kAnswer, "", fmt::format("{{\"{}\": {{...}}}}", name), show_json(json));
  }
  return std::move(json.at(name));
}

template <class Set, class Named>
Set read_set(JsonFields& fields, const char* name, Named named) {
  Set set;
  fields.read_names(name, fields.need(name), "one of the names in the request", named,
                    [&](auto value) { set.insert(value); });
  return set;
}

Versions read_versions(JsonFields& hello) {
  Versions versions;
  const Json* list = hello.find("versions");
  if (list == nullptr) return versions;
  const std::string path = hello.path("versions");
  if (!list->is_object() || list->size() > kMostVersions) {
    hello.fail(path, fmt::format("an object of at most {} fields", kMostVersions),
               show_json(*list));
  }
  for (const auto& [name, version] : list->items()) {
    std::string key;
    hello.line(Json(name), path, key);
    hello.line(version, fmt::format("{}.{}", path, key), versions[key]);
  }
  return versions;
}

/// Declarations of layers of the subject's own.
std::vector<const CustomLayer*> read_layers(JsonFields& hello) {
  std::vector<const CustomLayer*> layers;
  const Json* list = hello.find("layers");
  if (list == nullptr) return layers;
  const std::string path = hello.path("layers");
  need_array(kAnswer, *list, path, kMostAnswerLayers);
  for (std::size_t i = 0; i < list->size(); ++i) {
    std::string text;
    hello.line((*list)[i], indexed(path, i), text);
    layers.push_back(declared(text));
  }
  return layers;
}

/// The cases that the subject can be given.
Scope read_scope(JsonFields& hello) {
  FeatureSet features = read_set<FeatureSet>(hello, "implements", feature_named);
  // Younger than the protocol: a subject that does not know of them was always asked for them.
  FeatureSet implied{Feature::one_row, Feature::nothing_trains};
  if (hello.find("lacks") != nullptr) {
    implied = implied.without(read_set<FeatureSet>(hello, "lacks", feature_named));
  }
  implied.for_each([&](Feature f) { features.insert(f); });
  Scope scope(features, read_layers(hello));
  hello.read("cases_per_shape", scope.cases_per_shape);
  if (scope.cases_per_shape < 1 || scope.cases_per_shape > kMostCasesPerShape) {
    hello.fail(hello.path("cases_per_shape"), fmt::format("1 to {}", kMostCasesPerShape),
               std::to_string(scope.cases_per_shape));
  }
  hello.read("new_plans", scope.new_plans);
  scope.options = read_options(hello);
  if (find_option(scope.options, kRepeat) != nullptr) {
    hello.fail(hello.path("options"), "other names, for the harness has this one", kRepeat);
  }
  scope.options.push_back(repeat_option());
  return scope;
}

/// An answer, its id checked.
class Answer : public JsonFields {
 public:
  /// Throws what the subject says instead of an answer.
  Answer(const Json& json, std::uint64_t id, const std::string& subject)
      : JsonFields(kAnswer, json, "answer") {
    const Json& echoed = need("id");
    if (!echoed.is_number_unsigned() || echoed != id) {
      fail(path("id"), std::to_string(id), show_json(echoed));
    }
    std::string unsupported;
    std::string broken;
    read("unsupported", unsupported, kLongestAnswerText);
    read("error", broken, kLongestAnswerText);
    if (!broken.empty()) {
      throw SubjectBroken(
          fmt::format("subject \"{}\" says that it is broken: {}", subject, broken));
    }
    if (!unsupported.empty()) throw NotJudged(fmt::format("{}: {}", subject, unsupported));
  }
};

}  // namespace

Hello read_hello(std::string_view text) {
  const Json json = parse_message(text, "hello");
  JsonFields fields(kAnswer, json, "hello");
  fields.need_version("protocol", kProtocol);
  Hello hello;
  Declaration& d = hello.declaration;
  d.foreign = true;
  fields.line(fields.need("name"), fields.path("name"), d.name);
  d.versions = read_versions(fields);
  d.scope = read_scope(fields);
  d.observes = read_set<Observables>(fields, "observes", observable_named)
                   .without({Observable::displacement, Observable::host_agreement});
  fields.read("may_vary", d.may_vary);
  std::string rounds = "equal";
  fields.read("rounds", rounds, JsonFields::kLongestLine);
  d.rounds_differently = rounds == "differently";
  if (rounds != "equal" && !d.rounds_differently) {
    fields.fail(fields.path("rounds"), R"("equal" or "differently")", show_json(rounds));
  }
  // Their hashes tell numbers of other bits apart, and nothing else.
  if (d.rounds_differently) d.observes.erase(Observable::recomputed_values);
  fields.read("whole_segments", d.whole_segments);
  fields.read("exports", d.exports);
  if (const Json* named = fields.find("profile")) {
    fields.line(*named, fields.path("profile"), d.profile);
  }
  fields.read("files", hello.files);
  fields.finish();
  return hello;
}

void read_run_answer(std::string_view text, std::uint64_t id, const std::string& subject,
                     const Case& c, const Geometry& geometry, const Record* before,
                     Record& record) {
  const Json json = parse_message(text, "answer");
  Answer answer(json, id, subject);
  const RecordBounds bounds{static_cast<int>(c.layers.size()), c.protocol.steps,
                            c.protocol.microbatches, static_cast<int>(geometry.parameters.size())};
  read_record(answer.need("record"), "answer.record", bounds, before, record);
  answer.finish();
}

std::string read_export_answer(std::string_view text, std::uint64_t id,
                               const std::string& subject) {
  const Json json = parse_message(text, "answer");
  Answer answer(json, id, subject);
  std::string script;
  answer.read("script", script, kLongestScript);
  if (script.empty()) answer.fail(answer.path("script"), "a script", "none");
  answer.finish();
  return script;
}

}  // namespace rematch
