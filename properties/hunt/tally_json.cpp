#include "properties/hunt/tally_json.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <tuple>

#include "properties/case/json.h"
#include "properties/case/json_fields.h"

namespace rematch {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kTally = "tally";
constexpr std::size_t kMostTallyBytes = std::size_t{1} << 30;
constexpr std::size_t kMostCases = std::size_t{1} << 20;
constexpr std::size_t kLongestTallyText = std::size_t{1} << 16;

Json json_of(const Case& c) { return Json::parse(to_json(c)); }

Json json_of(const Violation& v) {
  Json j{{"law", v.law}, {"place", v.place}, {"expected", v.expected}, {"got", v.got}};
  // As text: JSON has no infinity.
  if (v.distance) j["distance"] = fmt::format("{}", *v.distance);
  return j;
}

Json json_of(const ViolatingCase& v) {
  Json j{{"index", v.index}, {"case", json_of(v.c)}, {"violation", json_of(v.violation)}};
  if (v.known) j["known"] = *v.known;
  if (v.count != 1) j["count"] = v.count;
  return j;
}

Json json_of(const std::vector<ViolatingCase>& cases) {
  Json list = Json::array();
  for (const ViolatingCase& v : cases) list.push_back(json_of(v));
  return list;
}

Json json_of(const Tally& t) {
  Json j{{"cases", t.cases},
         {"not_judged", t.not_judged},
         {"why_not_judged", t.why_not_judged},
         // As text: other readers of JSON would round it.
         {"record_hash", fmt::format("{:016x}", t.record_hash)},
         {"exact_hash", fmt::format("{:016x}", t.exact_hash)},
         {"device_work", t.device_work},
         {"structures", Json::object()},
         {"features", Json::object()},
         {"verdicts", Json::object()},
         {"first_violated", Json::object()},
         {"violated", Json::array()},
         {"violating", json_of(t.violating)},
         {"known", Json::array()},
         {"needed", Json::array()},
         {"known_cases", json_of(t.known_cases)},
         {"cases_with_bug", t.cases_with_bug},
         {"cases_with_limit", t.cases_with_limit}};
  for (const auto& [structure, laws] : t.structures.kept()) {
    j["structures"][fmt::format("{:016x}", structure)] = fmt::format("{:016x}", laws.to_ullong());
  }
  for (std::size_t i = 0; i < kFeatureCount; ++i) {
    if (t.features[i] == 0) continue;
    j["features"][std::string(to_string(static_cast<Feature>(i)))] = t.features[i];
  }
  for (std::size_t i = 0; i < t.verdicts.size(); ++i) {
    const std::string law(laws()[i].name);
    if (t.verdicts[i] != VerdictCounts{}) j["verdicts"][law] = t.verdicts[i];
    if (t.first_violated[i] != 0) j["first_violated"][law] = t.first_violated[i];
  }
  for (const auto& [by, count] : t.violated) {
    const Json entry = by.second == kUnexplained ? Json(nullptr) : Json(by.second);
    j["violated"].push_back({laws()[by.first].name, entry, count});
  }
  for (const auto& [entry, count] : t.known) j["known"].push_back({entry, count});
  for (const auto& [entry, index] : t.needed) j["needed"].push_back({entry, index});
  return j;
}

Json json_of(const Finding& f) {
  Json j{{"violation", json_of(f.violation)},
         {"index", f.index},
         {"original", json_of(f.original)},
         {"smallest", json_of(f.smallest)},
         {"count", f.count}};
  if (f.known) j["known"] = *f.known;
  return j;
}

/// A number that has to be there.
template <class Number>
Number number(JsonFields& fields, const char* name) {
  return fields.integer<Number>(fields.need(name), fields.path(name));
}

Case read_case(JsonFields& fields, const char* name) {
  return case_from_json(fields.need(name).dump());
}

std::optional<std::size_t> read_known(JsonFields& fields) {
  const Json* known = fields.find("known");
  if (known == nullptr) return std::nullopt;
  return fields.integer<std::size_t>(*known, fields.path("known"));
}

Violation read_violation(JsonFields& of, const char* name) {
  JsonFields fields(kTally, of.need(name), of.path(name));
  std::string law;
  std::string distance;
  Violation v;
  fields.read("law", law, kLongestTallyText);
  fields.read("place", v.place, kLongestTallyText);
  fields.read("expected", v.expected, kLongestTallyText);
  fields.read("got", v.got, kLongestTallyText);
  fields.read("distance", distance, kLongestTallyText);
  fields.finish();
  const Law* const known = find_law(law);
  if (known == nullptr) fields.fail(fields.path("law"), "the name of a law", show_json(law));
  v.law = known->name;
  if (distance.empty()) return v;
  const char* const end = distance.data() + distance.size();
  double read = 0;
  if (const auto [rest, error] = std::from_chars(distance.data(), end, read);
      error != std::errc() || rest != end) {
    fields.fail(fields.path("distance"), "a number as text", show_json(distance));
  }
  v.distance = read;
  return v;
}

ViolatingCase read_violating(const Json& json, const std::string& path) {
  JsonFields fields(kTally, json, path);
  ViolatingCase v{number<std::uint64_t>(fields, "index"), read_case(fields, "case"),
                  read_violation(fields, "violation"), read_known(fields)};
  fields.read("count", v.count);
  fields.finish();
  return v;
}

void read_cases(JsonFields& fields, const char* name, std::vector<ViolatingCase>& to) {
  const Json& list = fields.need(name);
  need_array(kTally, list, fields.path(name), kMostCases);
  for (std::size_t i = 0; i < list.size(); ++i) {
    to.push_back(read_violating(list[i], indexed(fields.path(name), i)));
  }
}

/// A number in 16 hexadecimal digits.
std::uint64_t read_hexadecimal(const Json& json, const std::string& path) {
  const std::string text = json.is_string() ? json.get<std::string>() : std::string();
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, 16);
  if (text.size() != 16 || error != std::errc() || rest != end) {
    json_fail(kTally, path, "16 hexadecimal digits", show_json(json));
  }
  return value;
}

/// Calls `read(position, value, path)` for each field of the object `name`; `position` is where
/// `place_of` has that field's name.
template <class PlaceOf, class Read>
void read_by_name(JsonFields& of, const char* name, PlaceOf place_of, Read read) {
  const Json& object = of.need(name);
  const JsonFields fields(kTally, object, of.path(name));
  for (const auto& [key, value] : object.items()) {
    const std::string path = fields.path(key.c_str());
    const std::optional<std::size_t> place = place_of(key);
    if (!place) fields.fail(path, "a known name", show_json(key));
    read(*place, value, path);
  }
}

std::optional<std::size_t> place_of_law(const std::string& name) {
  const Law* const law = find_law(name);
  return law == nullptr ? std::nullopt : std::optional(index_of(*law));
}

std::optional<std::size_t> place_of_feature(const std::string& name) {
  const std::optional<Feature> feature = feature_named(name);
  return feature ? std::optional(static_cast<std::size_t>(*feature)) : std::nullopt;
}

/// An array of `expected` values.
void need_values(const Json& json, const std::string& path, std::size_t expected) {
  need_array(kTally, json, path, expected);
  if (json.size() != expected) {
    json_fail(kTally, path, fmt::format("{} values", expected), show_json(json));
  }
}

}  // namespace

std::string to_json(const Tally& tally) { return line_of(json_of(tally)); }
std::string to_json(const ViolatingCase& violating) { return line_of(json_of(violating)); }
std::string to_json(const Finding& finding) { return line_of(json_of(finding)); }

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json parse_tally_text(std::string_view text) {
  return parse_json(kTally, text, kMostTallyBytes, kMaxCaseTextNesting);
}

ViolatingCase violating_from_json(const Json& json) { return read_violating(json, "case"); }

Finding finding_from_json(const Json& json) {
  JsonFields fields(kTally, json, "finding");
  Finding f{read_violation(fields, "violation"),    number<std::uint64_t>(fields, "index"),
            read_case(fields, "original"),          read_case(fields, "smallest"),
            number<std::uint64_t>(fields, "count"), read_known(fields)};
  fields.finish();
  return f;
}

Tally tally_from_json(const Json& json) {
  JsonFields fields(kTally, json, "tally");
  const auto count = [&](const Json& value, const std::string& path) {
    return fields.integer<std::uint64_t>(value, path);
  };
  Tally t;
  t.cases = number<std::uint64_t>(fields, "cases");
  t.not_judged = number<std::uint64_t>(fields, "not_judged");
  const Json& reasons = fields.need("why_not_judged");
  const JsonFields why(kTally, reasons, fields.path("why_not_judged"));
  for (const auto& [reason, cases] : reasons.items()) {
    t.why_not_judged[reason] = count(cases, why.path(reason.c_str()));
  }
  t.record_hash = read_hexadecimal(fields.need("record_hash"), fields.path("record_hash"));
  t.exact_hash = read_hexadecimal(fields.need("exact_hash"), fields.path("exact_hash"));
  const Json& structures = fields.need("structures");
  const JsonFields of_structures(kTally, structures, fields.path("structures"));
  for (const auto& [structure, judged] : structures.items()) {
    const std::string path = of_structures.path(structure.c_str());
    t.structures.add(read_hexadecimal(Json(structure), path), read_hexadecimal(judged, path));
  }
  const Json& asked = fields.need("device_work");
  const JsonFields work(kTally, asked, fields.path("device_work"));
  for (const auto& [kind, value] : asked.items()) {
    t.device_work[kind] = work.integer<std::int64_t>(value, work.path(kind.c_str()));
  }
  read_by_name(fields, "features", place_of_feature,
               [&](std::size_t feature, const Json& value, const std::string& path) {
                 t.features[feature] = count(value, path);
               });
  read_by_name(fields, "verdicts", place_of_law,
               [&](std::size_t law, const Json& value, const std::string& path) {
                 need_values(value, path, kVerdictCount);
                 for (std::size_t i = 0; i < kVerdictCount; ++i) {
                   t.verdicts[law][i] = count(value[i], indexed(path, i));
                 }
               });
  read_by_name(fields, "first_violated", place_of_law,
               [&](std::size_t law, const Json& value, const std::string& path) {
                 t.first_violated[law] = count(value, path);
               });
  const Json& violated = fields.need("violated");
  need_array(kTally, violated, fields.path("violated"), kMostCases);
  for (std::size_t i = 0; i < violated.size(); ++i) {
    const std::string path = indexed(fields.path("violated"), i);
    need_values(violated[i], path, 3);
    const auto& [name, entry, cases] = std::tie(violated[i][0], violated[i][1], violated[i][2]);
    const auto law = name.is_string() ? place_of_law(name.get<std::string>()) : std::nullopt;
    if (!law) fields.fail(path, "the name of a law", show_json(name));
    const auto by = entry.is_null() ? kUnexplained : fields.integer<std::size_t>(entry, path);
    t.violated[{*law, by}] = count(cases, path);
  }
  read_cases(fields, "violating", t.violating);
  const auto read_by_entry = [&](const char* name, std::map<std::size_t, std::uint64_t>& to) {
    const Json& list = fields.need(name);
    need_array(kTally, list, fields.path(name), kMostCases);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string path = indexed(fields.path(name), i);
      need_values(list[i], path, 2);
      to[fields.integer<std::size_t>(list[i][0], path)] = count(list[i][1], path);
    }
  };
  read_by_entry("known", t.known);
  read_by_entry("needed", t.needed);
  read_cases(fields, "known_cases", t.known_cases);
  t.cases_with_bug = number<std::uint64_t>(fields, "cases_with_bug");
  t.cases_with_limit = number<std::uint64_t>(fields, "cases_with_limit");
  fields.finish();
  for (const ViolatingCase& v : t.known_cases) {
    if (!v.known || !t.known.contains(*v.known)) {
      fields.fail(fields.path("known_cases"), "cases of the entries in known", "another one");
    }
  }
  return t;
}

}  // namespace rematch
