#include "properties/conform/causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "properties/conform/words.h"

namespace rematch::conform {

Harm Cause::harm() const {
  Harm worst = Harm::own;
  for (const Sighting& s : seen) worst = std::min(worst, s.divergence->harm());
  return worst;
}

bool Cause::reaches_a_gradient() const {
  return std::any_of(seen.begin(), seen.end(),
                     [](const Sighting& s) { return s.divergence->wrong_gradients() > 0; });
}

bool Cause::is_silent() const {
  return std::any_of(seen.begin(), seen.end(),
                     [](const Sighting& s) { return s.divergence->is_silent(); });
}

std::vector<std::string> Cause::laws() const {
  std::set<std::string> names;
  for (const Sighting& s : seen) {
    for (const auto& [law, cases] : s.divergence->laws) names.insert(law);
  }
  return {names.begin(), names.end()};
}

std::string Cause::where(bool gradients, std::string (*name)(std::string_view)) const {
  std::string text;
  for (const Sighting& s : seen) {
    const std::uint64_t cases = gradients ? s.divergence->wrong_gradients() : s.divergence->cases;
    if (cases == 0) continue;
    text += fmt::format("{}{} {} of {}", text.empty() ? "" : ", ", name(s.column->subject),
                        number(cases), number(s.column->cases));
  }
  return text;
}

std::vector<Cause> causes_of(const Page& page) {
  std::vector<Cause> causes;
  for (const Column* column : in_order(page)) {
    for (const Divergence& d : column->divergences) {
      const auto same = [&](const Cause& c) {
        return d.mark != Mark::fresh && c.framework == column->framework() &&
               c.first().id == d.id && c.first().mark == d.mark;
      };
      const auto found = std::find_if(causes.begin(), causes.end(), same);
      Cause& cause = found != causes.end() ? *found : causes.emplace_back();
      cause.framework = column->framework();
      cause.seen.push_back({column, &d});
    }
  }
  // Frameworks stay in their order, since all causes of one lie together.
  for (auto begin = causes.begin(); begin != causes.end();) {
    const auto end = std::find_if(begin, causes.end(),
                                  [&](const Cause& c) { return c.framework != begin->framework; });
    std::stable_sort(begin, end, [](const Cause& a, const Cause& b) {
      return std::tuple(b.first().mark, a.harm()) < std::tuple(a.first().mark, b.harm());
    });
    begin = end;
  }
  return causes;
}

std::vector<Unseen> unseen_in(const Page& page, const std::vector<std::string>& every) {
  std::map<std::pair<std::string, std::string>, std::vector<const Column*>> without;
  std::set<std::pair<std::string, std::string>> shown;
  std::set<std::string> missing;
  for (const std::string& name : every) {
    const auto judged = [&](const Column& c) {
      return c.subject == name && c.cases > c.not_judged;
    };
    if (std::any_of(page.columns.begin(), page.columns.end(), judged)) continue;
    missing.insert(name.substr(0, name.find(':')));
  }
  for (const Column& c : page.columns) {
    for (const std::string& id : c.unseen) without[{c.framework(), id}].push_back(&c);
    for (const Divergence& d : c.divergences) shown.emplace(c.framework(), d.id);
    for (const std::string& id : c.shown) shown.emplace(c.framework(), id);
  }
  std::map<std::vector<const Column*>, Unseen> together;
  for (const auto& [entry, columns] : without) {
    if (shown.contains(entry)) continue;
    Unseen& unseen = together[columns];
    unseen.framework = entry.first;
    unseen.ids.push_back(entry.second);
    if (unseen.ids.size() > 1) continue;
    unseen.stale = !missing.contains(entry.first);
    for (const Column* c : columns) {
      unseen.structures += c->structures;
      unseen.stale = unseen.stale && c->structures >= kStructuresToConfirm;
    }
  }
  std::vector<Unseen> list;
  for (auto& [columns, unseen] : together) list.push_back(std::move(unseen));
  return list;
}

}  // namespace rematch::conform
