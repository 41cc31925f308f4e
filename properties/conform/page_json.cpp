#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "properties/case/describe.h"
#include "properties/case/json.h"
#include "properties/conform/page.h"

namespace rematch::conform {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Cell& cell) {
  Json j{{"mark", to_string(cell.mark())}, {"structures", cell.structures}};
  for (std::size_t i = 0; i < kMarks; ++i) {
    if (cell.cases[i] > 0) j[std::string(to_string(static_cast<Mark>(i)))] = cell.cases[i];
  }
  return j;
}

Json json_of(const Divergence& d) {
  Json j{{"id", d.id}, {"mark", to_string(d.mark)}, {"cases", d.cases}};
  if (!d.why.empty()) j["why"] = d.why;
  if (!d.reported.empty()) j["reported"] = d.reported;
  if (!d.shown_by.empty()) j["shown_by"] = d.shown_by;
  if (!d.since.empty()) j["since"] = d.since;
  if (d.plain_too) j["plain_too"] = true;
  if (d.moves_gradients) j["moves_gradients"] = true;
  j["harm"] = to_string(d.harm());
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
  if (!c.state.empty()) j["state"] = c.state;
  j["cases"] = c.cases;
  j["structures"] = c.structures;
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
  j["known_but_not_seen"] = c.unseen;
  if (!c.shown.empty()) j["shown_otherwise"] = c.shown;
  return j;
}

std::string on_one_line(const Json& j) {
  // Text may quote what a subject wrote, whatever that was.
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// `object` with one more field, a list with one entry a line: so a line of a difference between
/// two pages is a law or a divergence.
template <class Entries, class Text>
std::string with_list(std::string object, std::string_view name, const Entries& entries,
                      Text text) {
  object.back() = ',';
  object += fmt::format("\n\"{}\":[", name);
  const char* before = "\n";
  for (const auto& entry : entries) {
    object += before + text(entry);
    before = ",\n";
  }
  return object + "]}";
}

std::string text_of(const Column& column) {
  return with_list(on_one_line(json_of(column)), "divergences", column.divergences,
                   [](const Divergence& d) { return on_one_line(json_of(d)); });
}

}  // namespace

std::string page_json(const Page& page) {
  std::string text = on_one_line({{"format", 2}, {"seed", page.seed}, {"mix", page.mix}});
  text = with_list(std::move(text), "laws", laws(), [](const Law& law) {
    return on_one_line(
        {{"name", law.name}, {"topic", to_string(law.topic)}, {"statement", law.statement}});
  });
  return with_list(std::move(text), "subjects", page.columns, text_of) + "\n";
}

}  // namespace rematch::conform
