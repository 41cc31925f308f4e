#include "properties/rounding/norms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "engine/math/float8.h"
#include "properties/rounding/functions.h"
#include "properties/rounding/vars.h"

namespace rematch::rounding {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr double kMomentum = 0.1;
constexpr double kShortest = 1e-12;

struct Normalised {
  Vars x;
  Var mean = 0;
  Var variance = 0;
};

/// (x - mean) / sqrt(variance + epsilon). Implementations also compute x * scale + shift, with the
/// mean in the shift: x - mean is off by roundings of x and of the mean themselves.
Normalised normalised(Tape& t, const Vars& x, bool centred) {
  Normalised n;
  Vars d = x;
  if (centred) {
    n.mean = mean_of(t, x);
    for (Var& v : d) v = t.plus(v).plus(n.mean, -1).sum();
  }
  for (const Var v : d) t.plus_product(v, v, 1 / static_cast<double>(d.size()));
  n.variance = t.sum();
  const Var scale = inverse_root(t, n.variance, kEpsilon);
  n.x = map(d, [&](Var v) { return t.plus_product(v, scale).sum(); });
  return n;
}

/// Normalises over groups of elements: group_of(i) of so many groups, and scales and shifts each
/// element by the parameters at channel_of(i).
template <class GroupOf, class ChannelOf>
Vars group_normalised(LayerRun& l, std::int64_t groups, bool centred, const GroupOf& group_of,
                      const ChannelOf& channel_of, std::vector<Normalised>* seen = nullptr) {
  Tape& t = l.tape;
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

Vars norm_of_rows(LayerRun& l, bool centred) {
  const auto width = static_cast<std::size_t>(l.shape[l.shape.rank() - 1]);
  const auto rows = static_cast<std::int64_t>(l.operands[0].size() / width);
  return group_normalised(
      l, rows, centred, [=](std::size_t i) { return static_cast<std::int64_t>(i / width); },
      [=](std::size_t i) { return static_cast<std::int64_t>(i % width); });
}

/// A row of a matrix [., width] times v.
Var row_product(Tape& t, const Vars& matrix, std::size_t row, std::span<const Var> v) {
  for (std::size_t i = 0; i < v.size(); ++i) t.plus_product(matrix[row * v.size() + i], v[i]);
  return t.sum();
}

/// x / max(|x|, shortest), as constants.
Vars unit_vector(Tape& t, const Vars& x) {
  for (const Var v : x) t.plus_product(v, v);
  const Bounded length = t[root(t, t.sum())];
  // A length on which side of the shortest one is open may be either.
  const double error = length.value < kShortest ? length.error + kShortest : length.error;
  const Var inverse = reciprocal(t, t.leaf({std::max(length.value, kShortest), error}));
  return map(x, [&](Var v) { return t.leaf(t[t.plus_product(v, inverse).sum()]); });
}

}  // namespace

Vars layer_norm(LayerRun& l) { return norm_of_rows(l, true); }

Vars rms_norm(LayerRun& l) { return norm_of_rows(l, false); }

Vars group_norm(LayerRun& l) {
  const auto plane = static_cast<std::size_t>(extent_from(l.shape, 2));
  const auto channels = static_cast<std::size_t>(l.shape[1]);
  const std::size_t size = plane * channels / static_cast<std::size_t>(l.spec.groups);
  return group_normalised(
      l, l.shape[0] * l.spec.groups, true,
      [=](std::size_t i) { return static_cast<std::int64_t>(i / size); },
      [=](std::size_t i) { return static_cast<std::int64_t>(i / plane % channels); });
}

Vars batch_norm(LayerRun& l) {
  Tape& t = l.tape;
  const auto plane = static_cast<std::size_t>(extent_from(l.shape, 2));
  const auto channels = static_cast<std::size_t>(l.shape[1]);
  const auto channel_of = [=](std::size_t i) {
    return static_cast<std::int64_t>(i / plane % channels);
  };
  if (l.train) {
    std::vector<Normalised> seen;
    Vars y = group_normalised(l, l.shape[1], true, channel_of, channel_of, &seen);
    const double count = static_cast<double>(l.operands[0].size() / channels);
    for (std::size_t c = 0; c < channels; ++c) {
      Var& mean = l.buffers[0][c];
      Var& variance = l.buffers[1][c];
      mean = t.plus(mean, 1 - kMomentum).plus(seen[c].mean, kMomentum).sum();
      variance = t.plus(variance, 1 - kMomentum)
                     .plus(seen[c].variance, kMomentum * count / (count - 1))
                     .sum();
    }
    return y;
  }
  const Vars scales = map(l.buffers[1], [&](Var v) { return inverse_root(t, v, kEpsilon); });
  Vars y;
  for (std::size_t i = 0; i < l.operands[0].size(); ++i) {
    const std::size_t c = at(channel_of(i));
    const Var d = t.plus(l.operands[0][i]).plus(l.buffers[0][c], -1).sum();
    const Var x = t.plus_product(d, scales[c]).sum();
    y.push_back(t.plus_product(x, l.parameters[0][c]).plus(l.parameters[1][c]).sum());
  }
  return y;
}

namespace {

/// Of float8, from the magnitudes of some forwards. Not what it is by them: gradients take it as
/// given.
Var float8_scale(Tape& t, const Vars& history) {
  const Var top = t.largest(history);
  if (t.low(top) > 0) return t.leaf(t[t.plus(top, 1 / math::kLargestFloat8).sum()]);
  // Whether it is 0 may be open.
  return t.leaf({1, t.high(top) > 0 ? std::numeric_limits<double>::infinity() : 0});
}

/// Rounding is monotonic: what a number may become lies between what its bounds become.
Vars delayed_float8(LayerRun& l) {
  Tape& t = l.tape;
  const Var scale = float8_scale(t, l.buffers[0]);
  const Var factor = reciprocal(t, scale);
  return map(l.operands[0], [&](Var v) {
    const Var exact = t.plus_product(v, factor).sum();
    Bounded number{math::rounded_to_float8(t[exact].value), t[exact].error};
    if (std::isfinite(number.error)) {
      number.error = std::max(math::rounded_to_float8(t.high(exact)) - number.value,
                              number.value - math::rounded_to_float8(t.low(exact)));
    }
    const Var rounded = t.leaf(number);
    return t.rounded(v, t[t.plus_product(rounded, scale).sum()]);
  });
}

Var largest_magnitude(Tape& t, const Vars& x) {
  return t.largest(map(x, [&](Var v) { return t.rectified(v, -1); }));
}

}  // namespace

Vars delayed_scaling(LayerRun& l) {
  Tape& t = l.tape;
  if (l.spec.fp8) {
    Vars y = delayed_float8(l);
    Vars& history = l.buffers[0];
    if (l.train) {
      history.erase(history.begin());
      history.push_back(largest_magnitude(t, l.operands[0]));
    }
    return y;
  }
  Var& scale = l.buffers[0][0];
  const Var factor = reciprocal(t, scale);
  const Vars& x = l.operands[0];
  Vars y = map(x, [&](Var v) { return t.plus_product(v, factor).sum(); });
  if (l.train) {
    scale = t.plus(scale, 0.5).plus(largest_magnitude(t, x), 0.5).sum();
  }
  return y;
}

Vars spectral_norm(LayerRun& l) {
  Tape& t = l.tape;
  const Vars& weight = l.parameters[0];
  Vars& u = l.buffers[0];
  Vars& v = l.buffers[1];
  if (l.train) {
    Vars columns;
    for (std::size_t j = 0; j < v.size(); ++j) {
      for (std::size_t i = 0; i < u.size(); ++i) t.plus_product(weight[i * v.size() + j], u[i]);
      columns.push_back(t.sum());
    }
    v = unit_vector(t, columns);
  }
  Vars rows;
  for (std::size_t i = 0; i < u.size(); ++i) rows.push_back(row_product(t, weight, i, v));
  if (l.train) u = unit_vector(t, rows);
  for (std::size_t i = 0; i < u.size(); ++i) t.plus_product(u[i], rows[i]);
  const Var sigma = t.sum();
  const double sign = t[sigma].value < 0 ? -1 : 1;
  const Var inverse = reciprocal(t, t.plus(sigma, sign).sum());
  const Vars normalised =
      map(weight, [&](Var w) { return t.plus_product(w, inverse, sign).sum(); });
  Vars y;
  for (std::size_t first = 0; first < l.operands[0].size(); first += v.size()) {
    const auto x = std::span(l.operands[0]).subspan(first, v.size());
    for (std::size_t i = 0; i < u.size(); ++i) {
      const Var product = row_product(t, normalised, i, x);
      y.push_back(l.spec.bias ? t.plus(product).plus(l.parameters[1][i]).sum() : product);
    }
  }
  return y;
}

}  // namespace rematch::rounding
