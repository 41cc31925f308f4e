#include <fmt/format.h>

#include "properties/case/json.h"
#include "properties/case/json_fields.h"
#include "properties/conform/page.h"

namespace rematch::conform {
namespace {

constexpr std::string_view kPage = "page";
constexpr std::size_t kMostPageBytes = std::size_t{1} << 28;
constexpr int kMostPageNesting = 64;
constexpr std::size_t kMostPageEntries = 65536;
constexpr std::size_t kLongestPageText = std::size_t{1} << 16;

std::string text_at(JsonFields& of, const char* name) {
  std::string text;
  of.read(name, text, kLongestPageText);
  return text;
}

/// A file below the page's folder, by its name: one that comes from elsewhere could name any other.
std::string file_at(JsonFields& of, const char* name, std::string_view folder) {
  std::string file = text_at(of, name);
  const bool is_below = file.starts_with(folder) && file.find("..") == std::string::npos;
  if (!file.empty() && !is_below) {
    of.fail(of.path(name), fmt::format("a file in {}", folder), show_json(file));
  }
  return file;
}

template <class Visit>
void for_each_field(JsonFields& of, const char* name, Visit visit) {
  const nlohmann::json& object = of.need(name);
  if (!object.is_object()) of.fail(of.path(name), "an object", show_json(object));
  for (const auto& [key, value] : object.items()) visit(key, value, of.path(name) + "." + key);
}

template <class Visit>
void for_each_entry(JsonFields& of, const char* name, Visit visit) {
  const nlohmann::json& list = of.need(name);
  need_array(kPage, list, of.path(name), kMostPageEntries);
  for (std::size_t i = 0; i < list.size(); ++i) visit(list[i], indexed(of.path(name), i));
}

std::vector<std::string> texts_of(JsonFields& of, const char* name) {
  std::vector<std::string> texts;
  for_each_entry(of, name, [&](const nlohmann::json& value, const std::string& path) {
    if (!value.is_string()) of.fail(path, "a text", show_json(value));
    texts.push_back(value.get<std::string>());
  });
  return texts;
}

Mark read_mark(JsonFields& fields) {
  const std::string name = text_at(fields, "mark");
  const auto mark = mark_named(name);
  if (!mark) fields.fail(fields.path("mark"), "a mark", show_json(name));
  return *mark;
}

Cell read_cell(JsonFields fields) {
  Cell cell;
  fields.read("structures", cell.structures);
  for (std::size_t i = 0; i < kMarks; ++i) {
    fields.read(to_string(static_cast<Mark>(i)).data(), cell.cases[i]);
  }
  if (const Mark mark = read_mark(fields); mark != cell.mark()) {
    fields.fail(fields.path("mark"),
                fmt::format("\"{}\", as the cases say", to_string(cell.mark())),
                show_json(to_string(mark)));
  }
  return cell;
}

Violation read_violation(JsonFields& fields) {
  Violation violation;
  const std::string law = text_at(fields, "law");
  // A law that is gone has no name that lasts.
  if (const Law* known = find_law(law)) violation.law = known->name;
  violation.place = text_at(fields, "place");
  violation.expected = text_at(fields, "expected");
  violation.got = text_at(fields, "got");
  return violation;
}

Divergence read_divergence(JsonFields fields) {
  Divergence d;
  d.mark = read_mark(fields);
  d.id = text_at(fields, "id");
  d.why = text_at(fields, "why");
  d.reported = text_at(fields, "reported");
  d.shown_by = text_at(fields, "shown_by");
  d.since = text_at(fields, "since");
  fields.read("plain_too", d.plain_too);
  fields.read("moves_gradients", d.moves_gradients);
  fields.read("cases", d.cases);
  for_each_field(fields, "laws",
                 [&](const std::string& law, const nlohmann::json& value, const std::string& path) {
                   fields.scalar(value, path, d.laws[law]);
                 });
  JsonFields smallest(kPage, fields.need("smallest"), fields.path("smallest"));
  d.violation = read_violation(smallest);
  d.smallest = case_from_json(smallest.need("case").dump());
  fields.read("first_case", d.index);
  d.file = file_at(fields, "file", "cases/");
  d.script = file_at(fields, "script", "scripts/");
  d.replay = text_at(fields, "replay");
  d.unshrunk = text_at(fields, "unshrunk");
  return d;
}

Column read_column(JsonFields fields) {
  Column c;
  c.subject = text_at(fields, "name");
  for_each_field(
      fields, "versions",
      [&](const std::string& name, const nlohmann::json& value, const std::string& path) {
        if (!value.is_string()) fields.fail(path, "a text", show_json(value));
        c.versions[name] = value.get<std::string>();
      });
  c.problem = text_at(fields, "problem");
  c.state = text_at(fields, "state");
  fields.read("interrupted", c.interrupted);
  fields.read("cases", c.cases);
  fields.read("structures", c.structures);
  fields.read("not_judged", c.not_judged);
  c.why_not_judged = text_at(fields, "why_not_judged");
  fields.read("seconds", c.seconds);
  c.shortfalls = texts_of(fields, "shortfalls");
  for_each_field(
      fields, "laws",
      [&](const std::string& name, const nlohmann::json& value, const std::string& path) {
        c.cells.resize(laws().size());
        if (const Law* law = find_law(name)) {
          c.cells[index_of(*law)] = read_cell(JsonFields(kPage, value, path));
        }
      });
  for_each_entry(fields, "divergences", [&](const nlohmann::json& value, const std::string& path) {
    c.divergences.push_back(read_divergence(JsonFields(kPage, value, path)));
  });
  c.unseen = texts_of(fields, "known_but_not_seen");
  if (fields.find("shown_otherwise") != nullptr) c.shown = texts_of(fields, "shown_otherwise");
  return c;
}

}  // namespace

Page page_from_json(std::string_view text) {
  const nlohmann::json json = parse_json(kPage, text, kMostPageBytes, kMostPageNesting);
  JsonFields fields(kPage, json, "");
  fields.need_version("format", 2);
  Page page;
  fields.read("seed", page.seed);
  page.mix = text_at(fields, "mix");
  for_each_entry(fields, "subjects", [&](const nlohmann::json& value, const std::string& path) {
    page.columns.push_back(read_column(JsonFields(kPage, value, path)));
  });
  return page;
}

}  // namespace rematch::conform
