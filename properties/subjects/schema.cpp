#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/names.h"
#include "properties/layers/custom_layer.h"
#include "properties/record/entries.h"
#include "properties/record/json.h"
#include "properties/subjects/answers.h"

namespace rematch {
namespace {

using Schema = nlohmann::ordered_json;

/// Objects, one a line, each field with its type: one of these objects, one of kNamedTypes, or one
/// of JSON's own. "?" may be left out; "[...]" is a list; a field without a type has that of its
/// name.
constexpr std::string_view kRequestObjects = R"(
hello_request: protocol: version, features: names, observables: names
run: id, case?, model?, arrays?, checkpointed: boolean, detached_layers: [count], layer_values: boolean
export: id, case, model, arrays, detached_layers: [count], finding: string
model: live: [[value]], parameters: [parameter], layer_parameters: [[count]], buffers: [buffer], custom_operands?: [operand]
parameter: layer: count, role: string, frozen: boolean
buffer: layer: count, role: string
operand: layer: count, shape: [count]
arrays: parameters: [array], buffers: [array], inputs: [array], targets: [array], reevaluation?: array, trial_input?: array, trial_target?: array, further_inputs?: [[array]], further_trial_inputs?: [array], further_reevaluation_inputs?: [array]
)";
constexpr std::string_view kAnswerObjects = R"(
array: dtype, shape, data?: base64, file?: string, offset?: count
hello_answer: protocol: version, name: line, versions?, implements: names, lacks?: names, observes: names, layers?, may_vary?: boolean, rounds?, whole_segments?: boolean, cases_per_shape?, new_plans?: boolean, profile?: line, options?, shares?, exports?: boolean, files?: boolean
run_answer: id, record?, script?, unsupported?: sentence, error?: sentence
)";
constexpr std::string_view kNamedTypes = R"({
  "id": {"type": "integer", "minimum": 0, "maximum": 18446744073709551615},
  "names": {"type": "array", "items": {"type": "string"}, "maxItems": 4096},
  "line": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[^\\u0000-\\u001f\\u007f]*$"},
  "lines_by_name": {"type": "object", "propertyNames": {"$ref": "#/$defs/line"},
    "additionalProperties": {"$ref": "#/$defs/line"}},
  "versions": {"$ref": "#/$defs/lines_by_name", "maxProperties": 64},
  "layers": {"type": "array", "maxItems": 4096,
    "items": {"type": "string", "maxLength": 200, "pattern": "^[A-Za-z0-9_.-]+ *: .+->.+$"}},
  "rounds": {"enum": ["equal", "differently"], "default": "equal"},
  "cases_per_shape": {"type": "integer", "minimum": 1, "maximum": 4096, "default": 1},
  "options": {"type": "object", "propertyNames": {"$ref": "#/$defs/line"}, "additionalProperties": {
    "type": "array", "items": {"$ref": "#/$defs/line"}, "minItems": 2, "maxItems": 4096, "uniqueItems": true}},
  "shares": {"type": "object", "propertyNames": {"$ref": "#/$defs/line"},
    "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1}},
  "script": {"type": "string", "minLength": 1, "maxLength": 1048576},
  "text": {"type": "string", "maxLength": 65536},
  "sentence": {"type": "string", "minLength": 1, "maxLength": 65536},
  "count": {"type": "integer", "minimum": 0, "maximum": 16777216},
  "count_or_none": {"type": "integer", "minimum": -1, "maximum": 16777216},
  "bytes": {"type": "integer", "minimum": -1099511627776, "maximum": 1099511627776},
  "bits64": {"description": "Above 2^53 as hex digits, which no reader rounds.", "anyOf": [
    {"$ref": "#/$defs/id"}, {"type": "string", "pattern": "^0x[0-9a-fA-F]{1,16}$"}]},
  "seed": {"description": "Above 2^53 as decimal digits, which no reader rounds.", "anyOf": [
    {"$ref": "#/$defs/id"}, {"type": "string", "pattern": "^[0-9]{1,20}$"}]},
  "number": {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]},
  "shape": {"type": "array", "maxItems": 8,
    "items": {"type": "integer", "minimum": 0, "maximum": 1099511627776}},
  "base64": {"type": "string", "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"},
  "value": {"type": "array", "minItems": 2, "items": false,
    "prefixItems": [{"$ref": "#/$defs/count_or_none"}, {"$ref": "#/$defs/count"}]}
})";

Schema type_at(std::string_view name) { return {{"$ref", fmt::format("#/$defs/{}", name)}}; }
Schema list_of(Schema item) { return {{"type", "array"}, {"items", std::move(item)}}; }
Schema one_field_of(Schema fields) {
  return {{"type", "object"},
          {"minProperties", 1},
          {"maxProperties", 1},
          {"properties", std::move(fields)},
          {"additionalProperties", false}};
}

/// The text before `end`, which is taken off with what stands there.
std::string_view taken_off(std::string_view& text, std::string_view end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(std::min(at + end.size(), text.size()));
  return before;
}

Schema type_named(std::string_view name) {
  if (name.starts_with('[')) return list_of(type_named(name.substr(1, name.size() - 2)));
  if (name == "boolean" || name == "string") return {{"type", name}};
  return type_at(name);
}

/// Fields that a later version adds to requests may be ignored, those of answers are refused.
void add_objects(std::string_view objects, bool closed, Schema& defs) {
  objects.remove_prefix(1);
  while (!objects.empty()) {
    std::string_view fields = taken_off(objects, "\n");
    Schema& object = defs[std::string(taken_off(fields, ": "))] = {{"type", "object"}};
    object["required"] = Schema::array();
    while (!fields.empty()) {
      std::string_view type = taken_off(fields, ", ");
      std::string_view name = taken_off(type, ": ");
      const bool optional = name.ends_with('?');
      if (optional) name.remove_suffix(1);
      if (!optional) object["required"].push_back(name);
      object["properties"][std::string(name)] = type_named(type.empty() ? name : type);
    }
    if (closed) object["additionalProperties"] = false;
  }
}

/// The type and the default of a field.
template <class Value>
Schema type_of(const Value& usual) {
  Schema type;
  if constexpr (std::is_same_v<Value, bool>) {
    type = {{"type", "boolean"}};
  } else if constexpr (std::is_floating_point_v<Value>) {
    type = type_at("number");
  } else if constexpr (std::is_same_v<Value, int>) {
    // -1 stands for none where it is the default.
    type = type_at(usual < 0 ? "count_or_none" : "count");
  } else if constexpr (std::is_integral_v<Value>) {
    type = type_at(std::is_signed_v<Value> ? "bytes" : "bits64");
  } else {
    type = type_at("text");
  }
  type["default"] = usual;
  return type;
}

template <class Names>
Schema one_of(const Names& names, std::string_view usual) {
  return {{"enum", names}, {"default", usual}};
}

struct EntryFields {
  Schema json = Schema::object();

  template <class Value>
  void operator()(std::string_view name, const Value& usual) {
    Schema& type = json[std::string(name)];
    if constexpr (std::is_enum_v<Value>) {
      const auto& names = entries::names_of(usual);
      type = one_of(names, names[static_cast<std::size_t>(usual)]);
    } else {
      type = type_of(usual);
    }
  }
  template <class Entry>
  void operator()(std::string_view name, const std::vector<Entry>&) {
    json[std::string(name)] = list_of(entry<Entry>());
  }
  template <class Entry>
  static Schema entry(Schema more = Schema::object()) {
    EntryFields fields;
    const Entry usual;
    entries::fields(fields, usual);
    fields.json.update(more);
    return {{"type", "object"}, {"properties", fields.json}, {"additionalProperties", false}};
  }
};

Schema record_schema() {
  EntryFields record;
  record.json["format"] = {{"const", kRecordFormat}};
  Schema& observations = record.json["observations"];
  observations = list_of(EntryFields::entry<Observation>(
      {{"shape", type_at("shape")}, {"data", type_at("base64")}, {"as", {{"type", "boolean"}}}}));
  observations["maxItems"] = 65536;
  const Record usual;
  entries::lists(record, usual);
  entries::scalars(record, usual);
  record.json["error"] = EntryFields::entry<RecordedError>();
  record.json["trial"] = EntryFields::entry<TrialReading>();
  return {{"description",
           "live, timeline, agreements, peak_bytes and reserved_bytes are written by "
           "the engine of the harness alone."},
          {"type", "object"},
          {"required", {"format"}},
          {"properties", record.json},
          {"additionalProperties", false}};
}

// The values of a case's fields that are no plain numbers.
Schema case_type(const CustomLayer*) { return {{"type", "string"}, {"default", ""}}; }
Schema case_type(const std::vector<std::int64_t>&) { return type_at("shape"); }
Schema case_type(const Options&) { return type_at("lines_by_name"); }
Schema case_type(const PlanSpec&) { return type_at("plan"); }
Schema case_type(const ProtocolSpec&) { return type_at("protocol"); }
Schema case_type(const PromiseSpec&) { return {{"type", "object"}}; }
Schema case_type(const std::optional<SequentialSpec>&) { return type_at("sequential"); }
Schema case_type(const std::vector<SegmentSpec>&) { return list_of(type_at("segment")); }
Schema case_type(const std::vector<LayerSpec>&) { return list_of(type_at("layer")); }
Schema case_type(const std::vector<KeepSpec>&) { return list_of(type_at("keep")); }
Schema case_type(const std::vector<ValueRef>&) {
  return {{"anyOf", {type_at("value"), list_of(type_at("value"))}}};
}
Schema case_type(std::uint64_t usual) {
  Schema type = type_at("seed");
  type["default"] = usual;
  return type;
}
template <class Value>
requires std::is_arithmetic_v<Value> Schema case_type(const Value& usual) { return type_of(usual); }
template <class Enum>
requires std::is_enum_v<Enum> Schema case_type(Enum usual) {
  Schema names = Schema::array();
  for (const auto& [value, name] : NamesOf<Enum>::list) {
    if (name == name_of(value)) names.push_back(name);
  }
  return one_of(names, name_of(usual));
}

/// A struct of a case, in which `required` and `more` fields are read by hand.
template <class S>
Schema struct_schema(std::vector<std::string_view> required = {}, Schema more = Schema::object()) {
  Schema fields = std::move(more);
  const S values;
  for_each_field(values, [&](const auto& field, const auto&, const auto& usual) {
    fields[std::string(field.name)] = case_type(usual);
    if (field.presence == Presence::required) required.push_back(field.name);
  });
  return {{"type", "object"}, {"required", required}, {"properties", fields}};
}

}  // namespace

std::string protocol_schema() {
  Schema defs = Schema::parse(kNamedTypes);
  defs["version"] = {{"const", kProtocol}};
  defs["dtype"] = {{"enum", entries::kDTypes}};
  add_objects(kRequestObjects, false, defs);
  add_objects(kAnswerObjects, true, defs);
  Schema& run = defs["run"];
  run["dependentRequired"] = {
      {"case", {"model", "arrays"}}, {"model", {"case"}}, {"arrays", {"case"}}};
  defs["array"]["oneOf"] = {{{"required", {"data"}}}, {{"required", {"file", "offset"}}}};
  for (const char* one : {"record", "script", "unsupported", "error"}) {
    defs["run_answer"]["oneOf"].push_back({{"required", {one}}});
  }
  defs["case"] = struct_schema<Case>({"format"}, {{"format", {{"const", Case::kFormat}}}});
  defs["layer"] = struct_schema<LayerSpec>({"kind"}, {{"kind", {{"type", "string"}}}});
  defs["plan"] = struct_schema<PlanSpec>();
  defs["segment"] = struct_schema<SegmentSpec>();
  defs["sequential"] = struct_schema<SequentialSpec>();
  defs["checkpoint"] = struct_schema<CheckpointChoice>();
  defs["keep"] = {
      {"type", "object"},
      {"required", {"op"}},
      {"properties", {{"op", {{"type", "string"}}}, {"index", type_of(KeepSpec{}.index)}}}};
  defs["protocol"] = struct_schema<ProtocolSpec>();
  defs["record"] = record_schema();
  defs["request"] = one_field_of({{"hello", type_at("hello_request")},
                                  {"run", type_at("run")},
                                  {"export", type_at("export")}});
  defs["answer"] =
      one_field_of({{"hello", type_at("hello_answer")}, {"answer", type_at("run_answer")}});
  const Schema schema{
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"title", fmt::format("Rematch: a subject in another process, version {}", kProtocol)},
      {"description",
       "One line of either pipe: a request of the harness, or the answer of a subject. "
       "PROTOCOL.md says what it means."},
      {"oneOf", {type_at("request"), type_at("answer")}},
      {"$defs", defs}};
  return schema.dump(2) + "\n";
}

}  // namespace rematch
