#include <nlohmann/json.hpp>

#include "properties/case/describe.h"
#include "properties/case/json.h"
#include "properties/conform/page.h"

namespace rematch::conform {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Cell& cell) {
  Json j{{"mark", to_string(cell.mark())}};
  for (std::size_t i = 0; i < kMarks; ++i) {
    if (cell.cases[i] > 0) j[std::string(to_string(static_cast<Mark>(i)))] = cell.cases[i];
  }
  return j;
}

Json json_of(const Divergence& d) {
  Json j{{"id", d.id}, {"mark", to_string(d.mark)}, {"cases", d.cases}};
  if (!d.why.empty()) j["why"] = d.why;
  if (!d.link.empty()) j["link"] = d.link;
  j["laws"] = d.laws;
  j["smallest"] = {{"law", d.violation.law},           {"place", d.violation.place},
                   {"expected", d.violation.expected}, {"got", d.violation.got},
                   {"in_words", describe(d.smallest)}, {"case", Json::parse(to_json(d.smallest))}};
  j["first_case"] = d.index;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) j[name] = value;
  };
  add("file", d.file);
  add("script", d.script);
  add("replay", d.replay);
  add("unshrunk", d.unshrunk);
  return j;
}

Json json_of(const Column& c) {
  Json j{{"name", c.subject}, {"versions", c.versions}};
  if (!c.problem.empty()) j["problem"] = c.problem;
  j["cases"] = c.cases;
  if (c.not_judged > 0) {
    j["not_judged"] = c.not_judged;
    j["why_not_judged"] = c.why_not_judged;
  }
  j["interrupted"] = c.interrupted;
  j["seconds"] = c.seconds;
  j["cases_per_second"] = c.cases_per_second();
  j["shortfalls"] = c.shortfalls;
  j["laws"] = Json::object();
  for (std::size_t i = 0; i < c.cells.size(); ++i) {
    j["laws"][std::string(laws()[i].name)] = json_of(c.cells[i]);
  }
  j["divergences"] = Json::array();
  for (const Divergence& d : c.divergences) j["divergences"].push_back(json_of(d));
  j["known_but_not_seen"] = c.unseen;
  return j;
}

std::string on_one_line(const Json& j) {
  // Text may quote what a subject wrote, whatever that was.
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// What fits on a line stands on one, so that a line of a difference between two pages is a law or
/// a divergence.
void write(const Json& j, std::size_t indent, std::string& out) {
  constexpr std::size_t kWidth = 100;
  const std::string line = on_one_line(j);
  if (!j.is_structured() || indent + line.size() <= kWidth) {
    out += line;
    return;
  }
  out += j.is_object() ? '{' : '[';
  const char* before = "\n";
  for (const auto& [key, value] : j.items()) {
    out += before + std::string(indent + 1, ' ');
    before = ",\n";
    if (j.is_object()) out += on_one_line(key) + ": ";
    write(value, indent + 1, out);
  }
  out += '\n' + std::string(indent, ' ') + (j.is_object() ? '}' : ']');
}

}  // namespace

std::string_view to_string(Change::Kind kind) {
  switch (kind) {
    case Change::Kind::broken:
      return "broken";
    case Change::Kind::mended:
      return "mended";
    case Change::Kind::other:
      return "other";
  }
  return "?";
}

std::string page_json(const Page& page) {
  Json j{{"format", 1}, {"seed", page.seed}, {"mix", page.mix}};
  j["laws"] = Json::array();
  for (const Law& law : laws()) {
    j["laws"].push_back({{"name", law.name}, {"statement", law.statement}});
  }
  j["subjects"] = Json::array();
  for (const Column& c : page.columns) j["subjects"].push_back(json_of(c));
  if (page.changes) {
    j["changes"] = Json::array();
    for (const Change& c : *page.changes) {
      j["changes"].push_back(
          {{"kind", to_string(c.kind)}, {"subject", c.subject}, {"text", c.text}});
    }
  }
  std::string text;
  write(j, 0, text);
  return text + "\n";
}

}  // namespace rematch::conform
