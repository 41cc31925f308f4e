#include "properties/case/nearest.h"

#include <algorithm>
#include <cstddef>

namespace rematch {
namespace {

/// The optimal string alignment distance (Damerau-Levenshtein without editing a swap again).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const std::size_t other = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + other});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view text, const std::vector<std::string>& names) {
  constexpr std::size_t kLongest = 64;
  std::string best;
  if (text.size() > kLongest) return best;
  std::size_t least = std::max<std::size_t>(1, (text.size() + 1) / 3) + 1;
  for (const std::string& name : names) {
    const std::size_t longer = std::max(name.size(), text.size());
    if (longer - std::min(name.size(), text.size()) >= least) continue;
    const std::size_t d = distance(text, name);
    if (d >= least || d >= name.size()) continue;
    least = d;
    best = name;
  }
  return best;
}

std::string did_you_mean(std::string_view text, const std::vector<std::string>& names) {
  const std::string name = nearest(text, names);
  return name.empty() ? name : "; did you mean " + name + "?";
}

}  // namespace rematch
