#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "properties/bounds/functions.h"
#include "properties/layers/layer_run.h"

namespace rematch::rounding {

// Norms with bounds.

inline constexpr double kNormEpsilon = 1e-5;

struct Normalised {
  Vars x;
  Var mean = 0;
  Var variance = 0;
};

/// (x - mean) / sqrt(variance + epsilon). Implementations also compute x * scale + shift, with the
/// mean in the shift: x - mean is off by roundings of x and of the mean themselves.
inline Normalised normalised(Bounds& t, const Vars& x, bool centred) {
  Normalised n;
  Vars d = x;
  if (centred) {
    n.mean = mean_of(t, x);
    for (Var& v : d) v = t.plus(v).plus(n.mean, -1).sum();
  }
  for (const Var v : d) t.plus_product(v, v, 1 / static_cast<double>(d.size()));
  n.variance = t.sum();
  const Var scale = inverse_root(t, n.variance, kNormEpsilon);
  n.x = map(d, [&](Var v) { return t.plus_product(v, scale).sum(); });
  return n;
}

/// Normalises over groups of elements: group_of(i) of so many groups, and scales and shifts each
/// element by the parameters at channel_of(i).
template <class GroupOf, class ChannelOf>
Vars group_normalised(LayerRun& l, std::int64_t groups, bool centred, const GroupOf& group_of,
                      const ChannelOf& channel_of, std::vector<Normalised>* seen = nullptr) {
  Bounds& t = l.bounds;
  const Vars& x = l.operands[0];
  std::vector<Vars> members(at(groups));
  for (std::size_t i = 0; i < x.size(); ++i) members[at(group_of(i))].push_back(x[i]);
  std::vector<Normalised> found;
  found.reserve(members.size());
  for (const Vars& group : members) found.push_back(normalised(t, group, centred));
  std::vector<std::size_t> next(members.size(), 0);
  Vars y;
  y.reserve(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t group = at(group_of(i));
    const std::size_t channel = at(channel_of(i));
    t.plus_product(found[group].x[next[group]++], l.parameters[0][channel]);
    if (centred) t.plus(l.parameters[1][channel]);
    y.push_back(t.sum());
  }
  if (seen != nullptr) *seen = std::move(found);
  return y;
}

inline std::vector<Vars> norm_of_rows(LayerRun& l, bool centred) {
  const auto width = static_cast<std::size_t>(l.shape[l.shape.rank() - 1]);
  const auto rows = static_cast<std::int64_t>(l.operands[0].size() / width);
  return {group_normalised(
      l, rows, centred, [=](std::size_t i) { return static_cast<std::int64_t>(i / width); },
      [=](std::size_t i) { return static_cast<std::int64_t>(i % width); })};
}

}  // namespace rematch::rounding
