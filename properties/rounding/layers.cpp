#include "properties/rounding/layers.h"

#include <algorithm>
#include <span>

#include "engine/math/rotary.h"
#include "properties/layers/attention.h"
#include "properties/layers/layer.h"
#include "properties/rounding/functions.h"
#include "properties/rounding/moe.h"
#include "properties/rounding/norms.h"
#include "properties/rounding/recurrent.h"

namespace rematch::rounding {
namespace {

/// Of rrelu in evaluation: the mean of its slopes.
constexpr double kSlope = (1.0 / 8 + 1.0 / 3) / 2;

/// Copies, so that nothing is rounded.
Vars embedding(const LayerRun& l) {
  const std::int64_t features = l.spec.features;
  Vars y;
  for (const Var token : l.operands[0]) {
    const auto row = static_cast<std::int64_t>(l.tape[token].value);
    for (std::int64_t c = 0; c < features; ++c)
      y.push_back(l.parameters[0][at(row * features + c)]);
  }
  return y;
}

Vars linear(LayerRun& l) {
  Tape& t = l.tape;
  const std::int64_t width = l.shape[l.shape.rank() - 1];
  const std::int64_t features = l.output[l.output.rank() - 1];
  Vars y;
  for (std::int64_t row = 0; row < l.shape.elements() / width; ++row) {
    for (std::int64_t o = 0; o < features; ++o) {
      for (std::int64_t i = 0; i < width; ++i) {
        t.plus_product(l.operands[0][at(row * width + i)], l.parameters[0][at(o * width + i)]);
      }
      if (l.spec.bias) t.plus(l.parameters[1][at(o)]);
      y.push_back(t.sum());
    }
  }
  return y;
}

/// Calls visit(n, y, x, taps) for each position of a window over [n, ., h, w], where taps are
/// the offsets (ky, kx) that lie on the image.
template <class Visit>
void for_each_window(const LayerRun& l, const Visit& visit) {
  const std::int64_t k = l.spec.kernel;
  for (std::int64_t y = 0; y < l.output[2]; ++y) {
    for (std::int64_t x = 0; x < l.output[3]; ++x) {
      for (std::int64_t ky = 0; ky < k; ++ky) {
        for (std::int64_t kx = 0; kx < k; ++kx) {
          const std::int64_t iy = y * l.spec.stride + ky - l.spec.padding;
          const std::int64_t ix = x * l.spec.stride + kx - l.spec.padding;
          if (iy < 0 || ix < 0 || iy >= l.shape[2] || ix >= l.shape[3]) continue;
          visit(y * l.output[3] + x, iy * l.shape[3] + ix, ky * k + kx);
        }
      }
    }
  }
}

Vars conv2d(LayerRun& l) {
  struct Tap {
    std::int64_t pixel;
    std::int64_t weight;
  };
  Tape& t = l.tape;
  const std::int64_t pixels = l.shape[2] * l.shape[3];
  const std::int64_t window = l.spec.kernel * l.spec.kernel;
  std::vector<std::vector<Tap>> taps(at(l.output[2] * l.output[3]));
  for_each_window(l, [&](std::int64_t to, std::int64_t from, std::int64_t weight) {
    taps[at(to)].push_back({from, weight});
  });
  Vars y;
  for (std::int64_t n = 0; n < l.shape[0]; ++n) {
    for (std::int64_t o = 0; o < l.output[1]; ++o) {
      for (const std::vector<Tap>& here : taps) {
        for (std::int64_t c = 0; c < l.shape[1]; ++c) {
          for (const Tap& tap : here) {
            t.plus_product(l.operands[0][at((n * l.shape[1] + c) * pixels + tap.pixel)],
                           l.parameters[0][at((o * l.shape[1] + c) * window + tap.weight)]);
          }
        }
        if (l.spec.bias) t.plus(l.parameters[1][at(o)]);
        y.push_back(t.sum());
      }
    }
  }
  return y;
}

/// pooled(window) for each window of each channel.
template <class Pooled>
Vars pool2d(const LayerRun& l, const Pooled& pooled) {
  const std::int64_t pixels = l.shape[2] * l.shape[3];
  std::vector<std::vector<std::int64_t>> taps(at(l.output[2] * l.output[3]));
  for_each_window(
      l, [&](std::int64_t to, std::int64_t from, std::int64_t) { taps[at(to)].push_back(from); });
  Vars y;
  for (std::int64_t plane = 0; plane < l.shape[0] * l.shape[1]; ++plane) {
    for (const auto& here : taps) {
      Vars window;
      for (const std::int64_t pixel : here) {
        window.push_back(l.operands[0][at(plane * pixels + pixel)]);
      }
      y.push_back(pooled(window));
    }
  }
  return y;
}

Vars softmax(LayerRun& l) {
  Tape& t = l.tape;
  const auto width = static_cast<std::size_t>(l.shape[l.shape.rank() - 1]);
  Vars y;
  for (std::size_t row = 0; row < l.operands[0].size(); row += width) {
    const Exponentials e = exponentials(t, std::span(l.operands[0]).subspan(row, width));
    const Var scale = reciprocal(t, e.sum);
    for (const Var v : e.x) y.push_back(t.plus_product(v, scale).sum());
  }
  return y;
}

/// Both operands one after the other, for each index of the dimensions before the features.
Vars concat(const LayerRun& l) {
  Vars y;
  const int features = features_dimension(l.shape);
  const auto rows = static_cast<std::size_t>(l.shape.elements() / extent_from(l.shape, features));
  for (std::size_t row = 0; row < rows; ++row) {
    for (const Vars& x : l.operands) {
      const auto size = static_cast<std::ptrdiff_t>(x.size() / rows);
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(row) * size;
      y.insert(y.end(), begin, begin + size);
    }
  }
  return y;
}

/// The cache before every sequence. Training leaves the last rows of the first one.
Vars kv_cache(LayerRun& l) {
  Vars& cache = l.buffers[0];
  const auto cached = static_cast<std::ptrdiff_t>(cache.size());
  const auto added = static_cast<std::ptrdiff_t>(extent_from(l.shape, 1));
  Vars y;
  for (auto x = l.operands[0].begin(); x != l.operands[0].end(); x += added) {
    y.insert(y.end(), cache.begin(), cache.end());
    y.insert(y.end(), x, x + added);
  }
  if (l.train) cache.assign(y.begin() + added, y.begin() + added + cached);
  return y;
}

std::vector<Vars> split(const LayerRun& l) {
  std::vector<Vars> y(2);
  const int features = features_dimension(l.shape);
  const auto plane = static_cast<std::size_t>(extent_from(l.shape, features + 1));
  const auto channels = static_cast<std::size_t>(l.shape[features]);
  for (std::size_t i = 0; i < l.operands[0].size(); ++i) {
    const bool first = static_cast<std::int64_t>(i / plane % channels) < l.spec.features;
    y[first ? 0 : 1].push_back(l.operands[0][i]);
  }
  return y;
}

/// A residual branch that every sample takes, or only those that do not exit. Where rounding
/// decides whether one does, nothing is said of its rows.
Vars residual(LayerRun& l, bool exits) {
  Tape& t = l.tape;
  const Vars& x = l.operands[0];
  const Vars& weight = l.parameters[0];
  const auto width = static_cast<std::size_t>(l.shape[l.shape.rank() - 1]);
  const auto sample = static_cast<std::size_t>(extent_from(l.shape, 1));
  Vars y;
  for (std::size_t row = 0; row < x.size(); row += width) {
    const auto values = std::span(x).subspan(row, width);
    const Var decides = x[row - row % sample];
    if (exits && t.low(decides) > 0) {
      y.insert(y.end(), values.begin(), values.end());
      continue;
    }
    if (exits && !(t.high(decides) <= 0)) {
      Vars of(values.begin(), values.end());
      of.insert(of.end(), weight.begin(), weight.end());
      const Var anything = t.undecided(of);
      for (std::size_t o = 0; o < width; ++o) y.push_back(t.undecided({anything}));
      continue;
    }
    for (std::size_t o = 0; o < width; ++o) {
      for (std::size_t i = 0; i < width; ++i) t.plus_product(x[row + i], weight[o * width + i]);
      const Var branch = t.sum();
      y.push_back(t.plus(x[row + o]).plus(branch).sum());
    }
  }
  return y;
}

Vars add(const LayerRun& l) {
  Vars y;
  for (std::size_t i = 0; i < l.operands[0].size(); ++i) {
    y.push_back(l.tape.plus(l.operands[0][i]).plus(l.operands[1][i]).sum());
  }
  return y;
}

Vars mul(const LayerRun& l) {
  Vars y;
  for (std::size_t i = 0; i < l.operands[0].size(); ++i) {
    y.push_back(l.tape.plus_product(l.operands[0][i], l.operands[1][i]).sum());
  }
  return y;
}

/// Cosines and sines are within 2^-50 of the exact ones at position 0, and as much further off with
/// each position as an angle in radians that is off by 4 roundoffs of float64: subjects compute
/// them in float64. What rounding them to a narrower format does rule 1 covers.
Vars rotary(const LayerRun& l) {
  Tape& t = l.tape;
  const math::RotaryShape s{l.shape[0], l.shape[1], l.shape[2], l.spec.features, l.spec.heads};
  const Vars& x = l.operands[0];
  Vars y = x;
  for (std::int64_t i = 0; i < s.batch * s.positions; ++i) {
    const std::int64_t position = i % s.positions;
    const double off = static_cast<double>(position + 1) * 0x1p-50;
    for (std::int64_t pair = 0; pair < s.pairs(); ++pair) {
      const math::CosSin by = math::rotation(position, pair, s.size());
      const Var cos = t.leaf({by.cos, off});
      const Var sin = t.leaf({by.sin, off});
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const std::size_t first = at(i * s.width + h * s.size() + pair);
        const std::size_t second = first + at(s.pairs());
        y[first] = t.plus_product(x[first], cos).plus_product(x[second], sin, -1).sum();
        y[second] = t.plus_product(x[second], cos).plus_product(x[first], sin).sum();
      }
    }
  }
  return y;
}

/// Scores are sums of products times a constant, which rule 1 covers.
Vars attention(const LayerRun& l) {
  Tape& t = l.tape;
  const math::AttentionShape s = attention_shape(l.spec, l.shape, l.other);
  const auto factor = s.scale<double>();
  Vars y(l.operands[0].size());
  for (std::int64_t row = 0; row < s.rows(); ++row) {
    const std::int64_t i = row % s.queries;
    const std::int64_t h = row / s.queries % s.heads;
    const std::int64_t b = row / s.queries / s.heads;
    Vars scores;
    for (std::int64_t j = 0; j < s.keys && s.sees(i, j); ++j) {
      for (std::int64_t c = 0; c < s.size; ++c) {
        t.plus_product(l.operands[0][at(s.query_at(b, i, h) + c)],
                       l.operands[1][at(s.key_at(b, j, h) + c)], factor);
      }
      scores.push_back(t.sum());
    }
    const Exponentials e = exponentials(t, scores);
    const Var scale = reciprocal(t, e.sum);
    const Vars probabilities = map(e.x, [&](Var v) { return t.plus_product(v, scale).sum(); });
    for (std::int64_t c = 0; c < s.size; ++c) {
      for (std::size_t j = 0; j < probabilities.size(); ++j) {
        const std::int64_t value = s.key_at(b, static_cast<std::int64_t>(j), h) + s.to_value();
        t.plus_product(probabilities[j], l.operands[1][at(value + c)]);
      }
      y[at(s.query_at(b, i, h) + c)] = t.sum();
    }
  }
  return y;
}

}  // namespace

bool is_determined(const LayerSpec& spec, bool train) {
  if (spec.kind == LayerKind::custom) return false;
  return !draws_in(spec, train);
}

std::vector<Vars> run(LayerRun& l) {
  Tape& t = l.tape;
  const Vars& x = l.operands[0];
  const auto each = [&](Var (*function)(Tape&, Var)) {
    return std::vector<Vars>{map(x, [&](Var v) { return function(t, v); })};
  };
  switch (l.spec.kind) {
    case LayerKind::embedding:
      return {embedding(l)};
    case LayerKind::linear:
      return {linear(l)};
    case LayerKind::conv2d:
      return {conv2d(l)};
    case LayerKind::max_pool2d:
      return {pool2d(l, [&](const Vars& window) { return t.largest(window); })};
    case LayerKind::avg_pool2d:
      return {pool2d(l, [&](const Vars& window) {
        for (const Var v : window) {
          t.plus(v, 1 / static_cast<double>(l.spec.kernel * l.spec.kernel));
        }
        return t.sum();
      })};
    case LayerKind::batch_norm:
      return {batch_norm(l)};
    case LayerKind::layer_norm:
      return {layer_norm(l)};
    case LayerKind::group_norm:
      return {group_norm(l)};
    case LayerKind::rms_norm:
      return {rms_norm(l)};
    case LayerKind::relu:
      return {map(x, [&](Var v) { return t.rectified(v, 0); })};
    case LayerKind::gelu:
      return each(gelu);
    case LayerKind::silu:
      return each(silu);
    case LayerKind::tanh:
      return each(rounding::tanh);
    case LayerKind::sigmoid:
      return each(sigmoid);
    case LayerKind::softmax:
      return {softmax(l)};
    case LayerKind::delayed_scaling:
      return {delayed_scaling(l)};
    case LayerKind::spectral_norm:
      return {spectral_norm(l)};
    case LayerKind::kv_cache:
      return {kv_cache(l)};
    case LayerKind::rrelu:
      return {map(x, [&](Var v) { return t.rectified(v, kSlope); })};
    case LayerKind::dropout:
    case LayerKind::gaussian_noise:
    case LayerKind::flatten:
      return {x};
    case LayerKind::add:
      return {add(l)};
    case LayerKind::mul:
      return {mul(l)};
    case LayerKind::attention:
      return {attention(l)};
    case LayerKind::moe:
      return {moe(l)};
    case LayerKind::stochastic_depth:
      return {residual(l, false)};
    case LayerKind::early_exit:
      return {residual(l, true)};
    case LayerKind::hooked:
      return {map(x, [&](Var v) { return t.hooked(v, l.spec.p); })};
    case LayerKind::rotary:
      return {rotary(l)};
    case LayerKind::gru:
      return {gru(l)};
    case LayerKind::lstm:
      return {lstm(l)};
    case LayerKind::concat:
      return {concat(l)};
    case LayerKind::split:
      return split(l);
    case LayerKind::duplicate:
      return {x, x};
    case LayerKind::custom:
      break;  // run_reference() leaves such models out.
  }
  return {x};
}

Tape::Var mean_squared_error(Tape& t, const Vars& x, const std::vector<double>& target) {
  Vars r;
  for (std::size_t i = 0; i < x.size(); ++i) {
    r.push_back(t.plus(x[i]).plus(t.leaf({target[i], 0}), -1).sum());
  }
  for (const Var v : r) t.plus_product(v, v, 1 / static_cast<double>(r.size()));
  return t.sum();
}

Tape::Var cross_entropy(Tape& t, const Vars& x, const std::vector<double>& target) {
  const std::size_t width = x.size() / target.size();
  Vars losses;
  for (std::size_t row = 0; row < target.size(); ++row) {
    const Exponentials e = exponentials(t, std::span(x).subspan(row * width, width));
    const Var total = log(t, e.sum);
    losses.push_back(
        t.plus(total).plus(e.shifted[static_cast<std::size_t>(target[row])], -1).sum());
  }
  return mean_of(t, losses);
}

}  // namespace rematch::rounding
