#include "properties/conform/causes.h"

#include <fmt/format.h>

#include <algorithm>
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

}  // namespace rematch::conform
