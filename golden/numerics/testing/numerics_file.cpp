#include "golden/numerics/testing/numerics_file.h"

#include <memory>
#include <stdexcept>

#include "properties/case/geometry.h"
#include "properties/case/json.h"
#include "properties/hunt/registry.h"
#include "properties/record/json.h"
#include "properties/testing/shell.h"

namespace rematch::golden {
namespace {

using Json = nlohmann::ordered_json;

std::string line_of(const Json& j) { return j.dump(); }

Json file_of(std::string_view text) {
  Json file = Json::parse(text);
  const int format = file.value("format", 0);
  if (format != kNumericsFormat) {
    throw std::runtime_error("format " + std::to_string(kNumericsFormat) + " expected, got " +
                             std::to_string(format));
  }
  return file;
}

Entry entry_of(const Json& j) {
  Entry e;
  e.name = j.at("name").get<std::string>();
  e.c = case_from_json(line_of(j.at("case")));
  e.exact = j.value("exact", false);
  record_from_json(line_of(j.at("record")), e.torch);
  return e;
}

}  // namespace

std::vector<Entry> parse_numerics(std::string_view text) {
  try {
    const Json file = file_of(text);
    std::vector<Entry> entries;
    for (const Json& entry : file.at("cases")) entries.push_back(entry_of(entry));
    return entries;
  } catch (const std::exception& error) {
    throw std::runtime_error("[golden] golden/numerics/numerics.json cannot be used: " +
                             std::string(error.what()) + "; run golden/make_numerics");
  }
}

std::string numerics_path() { return REMATCH_SOURCE_DIR "/golden/numerics/numerics.json"; }

std::vector<Entry> read_numerics() { return parse_numerics(testing::text_of(numerics_path())); }

std::string recorded(std::string_view text) {
  const Json file = file_of(text);
  const std::unique_ptr<Subject> torch = make_subject("pytorch");
  std::string result = "{\n\"format\": " + std::to_string(kNumericsFormat) +
                       ",\n\"regenerate\": \"golden/make_numerics\",\n\"torch\": ";
  const std::string version = torch->declares().versions.at("torch");
  result += Json(version.substr(0, version.find('+'))).dump() + ",\n\"cases\": [";
  const char* before = "\n";
  for (Json entry : file.at("cases")) {
    const Case c = case_from_json(line_of(entry.at("case")));
    Record all;
    torch->run(c, validate(c), {}, all);
    if (all.error) throw std::runtime_error(entry.at("name").get<std::string>() + ": an error");
    // What is computed, without what is observed besides.
    Record numbers;
    numbers.observations = all.observations;
    numbers.data = all.data;
    entry["record"] = Json::parse(to_json(numbers));
    result += before + line_of(entry);
    before = ",\n";
  }
  return result + "\n]}\n";
}

}  // namespace rematch::golden
