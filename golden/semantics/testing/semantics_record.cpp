#include "golden/semantics/testing/semantics_record.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace rematch::golden {

using nlohmann::json;

const Probe* SemanticsRecord::find(std::string_view id) const {
  for (const Probe& probe : probes) {
    if (probe.id == id) return &probe;
  }
  return nullptr;
}

SemanticsRecord parse_semantics(std::string_view text) {
  try {
    const json file = json::parse(text);
    const int format = file.value("format", 0);
    if (format != kSemanticsFormat) {
      throw std::runtime_error("format " + std::to_string(kSemanticsFormat) + " expected, got " +
                               std::to_string(format));
    }
    SemanticsRecord record;
    record.errors = file.at("errors");
    file.at("rules").get_to(record.rules);
    record.torch = file.value("torch", "");
    for (const json& entry : file.at("probes")) {
      Probe probe{entry.at("id").get<std::string>(), entry.at("rule").get<std::string>(),
                  entry.at("seen"), entry.value("promised", json::object())};
      if (!probe.id.starts_with(probe.rule + ".") || !probe.seen.is_object() ||
          probe.seen.empty() || record.rules.count(probe.rule) == 0) {
        throw std::runtime_error("the entry " + probe.id + " is not one of rule " + probe.rule +
                                 " with facts");
      }
      if (record.find(probe.id) != nullptr) {
        throw std::runtime_error("the id " + probe.id + " occurs twice");
      }
      record.probes.push_back(std::move(probe));
    }
    return record;
  } catch (const std::exception& error) {
    throw std::runtime_error("[golden] golden/semantics/semantics.json cannot be used: " +
                             std::string(error.what()) + "; run golden/make_semantics");
  }
}

const SemanticsRecord& semantics_record() {
  static const SemanticsRecord record = [] {
    std::ifstream file(REMATCH_SOURCE_DIR "/golden/semantics/semantics.json");
    std::ostringstream text;
    text << file.rdbuf();
    return parse_semantics(text.str());
  }();
  return record;
}

}  // namespace rematch::golden
