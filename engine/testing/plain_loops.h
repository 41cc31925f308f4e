#pragma once

// The ops whose kernels work in blocks, as loops that follow their definitions and know no block.
// T is double, or std::complex<double> whose imaginary part carries a derivative.

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace rematch::testing {

using Extents = std::vector<std::int64_t>;

inline double real_of(double x) { return x; }
inline double real_of(const std::complex<double>& x) { return x.real(); }

/// Row-major values.
template <class T>
struct Plain {
  Extents extents;
  std::vector<T> values;
  explicit Plain(Extents e) : extents(std::move(e)) {
    std::int64_t n = 1;
    for (const std::int64_t extent : extents) n *= extent;
    values.resize(static_cast<std::size_t>(n));
  }
  std::int64_t size(std::size_t dimension) const { return extents[dimension]; }
  T& operator[](std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
  const T& operator[](std::int64_t i) const { return values[static_cast<std::size_t>(i)]; }
};
template <class T>
using Plains = std::vector<Plain<T>>;

template <class T>
T sigmoid(T x) {
  return 1.0 / (1.0 + std::exp(-x));
}

/// Row `row` of weight[rows, n] times n values from `x` on, and the bias, if any.
template <class T>
T product(const Plain<T>& weight, std::int64_t row, const T* x, const Plain<T>* bias = nullptr) {
  const std::int64_t n = weight.size(1);
  T sum = bias != nullptr ? (*bias)[row] : T(0);
  for (std::int64_t k = 0; k < n; ++k) sum += weight[row * n + k] * x[k];
  return sum;
}

/// In place.
template <class T>
void softmax(std::vector<T>& row) {
  double most = real_of(row[0]);
  for (const T& x : row) most = std::max(most, real_of(x));
  T sum(0);
  for (T& x : row) sum += x = std::exp(x - most);
  for (T& x : row) x /= sum;
}

/// x[rows, n], weight[n] and, unless they are only divided by their root mean square, bias[n].
template <class T>
Plain<T> plain_norm(const Plains<T>& in, bool centred) {
  const Plain<T>& x = in[0];
  const std::int64_t n = x.size(1);
  Plain<T> y(x.extents);
  for (std::int64_t r = 0; r < x.size(0); ++r) {
    T mean(0);
    for (std::int64_t j = 0; centred && j < n; ++j) mean += x[r * n + j];
    mean /= static_cast<double>(n);
    T square(0);
    for (std::int64_t j = 0; j < n; ++j) square += (x[r * n + j] - mean) * (x[r * n + j] - mean);
    const T scale = 1.0 / std::sqrt(square / static_cast<double>(n) + 1e-5);
    for (std::int64_t j = 0; j < n; ++j) {
      y[r * n + j] = (x[r * n + j] - mean) * scale * in[1][j];
      if (centred) y[r * n + j] += in[2][j];
    }
  }
  return y;
}

/// Channel c of x[n, channels, h, w] and its parameters in[1][c] and in[2][c]: normalised over sets
/// of `together` channels of a sample, or, if that is 0, over the channel in all samples.
template <class T>
Plain<T> plain_channel_norm(const Plains<T>& in, std::int64_t together) {
  const Plain<T>& x = in[0];
  const std::int64_t channels = x.size(1);
  const std::int64_t plane = x.size(2) * x.size(3);
  const auto set_of = [&](std::int64_t i) {
    const std::int64_t channel = i / plane % channels;
    if (together == 0) return static_cast<std::size_t>(channel);
    return static_cast<std::size_t>((i / plane / channels * channels + channel) / together);
  };
  const auto all = static_cast<std::int64_t>(x.values.size());
  std::vector<T> mean(static_cast<std::size_t>(x.size(0) * channels));
  std::vector<T> square(mean);
  std::vector<double> count(mean.size());
  for (std::int64_t i = 0; i < all; ++i) {
    mean[set_of(i)] += x[i];
    ++count[set_of(i)];
  }
  for (std::size_t s = 0; s < mean.size(); ++s) mean[s] /= std::max(count[s], 1.0);
  for (std::int64_t i = 0; i < all; ++i) {
    const T centred = x[i] - mean[set_of(i)];
    square[set_of(i)] += centred * centred / count[set_of(i)];
  }
  Plain<T> y(x.extents);
  for (std::int64_t i = 0; i < all; ++i) {
    const std::size_t s = set_of(i);
    const std::int64_t channel = i / plane % channels;
    y[i] = (x[i] - mean[s]) / std::sqrt(square[s] + 1e-5) * in[1][channel] + in[2][channel];
  }
  return y;
}

/// x[rows, classes], of which row r has the target r % classes.
template <class T>
Plain<T> plain_cross_entropy(const Plains<T>& in) {
  const std::int64_t rows = in[0].size(0);
  const std::int64_t n = in[0].size(1);
  Plain<T> loss(Extents{});
  for (std::int64_t r = 0; r < rows; ++r) {
    std::vector<T> row(in[0].values.begin() + r * n, in[0].values.begin() + (r + 1) * n);
    softmax(row);
    loss[0] -= std::log(row[static_cast<std::size_t>(r % n)]) / static_cast<double>(rows);
  }
  return loss;
}

/// x[rows, n], weight[m, n], bias[m].
template <class T>
Plain<T> plain_linear(const Plains<T>& in) {
  const std::int64_t m = in[1].size(0);
  Plain<T> y({in[0].size(0), m});
  for (std::int64_t i = 0; i < in[0].size(0); ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      y[i * m + j] = product(in[1], j, &in[0][i * in[0].size(1)], &in[2]);
    }
  }
  return y;
}

/// x[rows, n], router[experts, n], experts[experts, n, n].
template <class T>
Plain<T> plain_moe(const Plains<T>& in, int top) {
  const std::int64_t n = in[0].size(1);
  const std::int64_t experts = in[1].size(0);
  Plain<T> y(in[0].extents);
  for (std::int64_t r = 0; r < in[0].size(0); ++r) {
    const T* const x = &in[0][r * n];
    std::vector<T> p;
    for (std::int64_t e = 0; e < experts; ++e) p.push_back(product(in[1], e, x));
    softmax(p);
    std::vector<bool> taken(p.size(), false);
    for (int k = 0; k < top; ++k) {
      std::size_t best = p.size();
      for (std::size_t e = 0; e < p.size(); ++e) {
        if (!taken[e] && (best == p.size() || real_of(p[e]) > real_of(p[best]))) best = e;
      }
      taken[best] = true;
      for (std::int64_t j = 0; j < n; ++j) {
        T sum(0);
        for (std::int64_t i = 0; i < n; ++i) {
          sum += in[2][(static_cast<std::int64_t>(best) * n + j) * n + i] * x[i];
        }
        y[r * n + j] += p[best] * sum;
      }
    }
  }
  return y;
}

/// x[batch, steps, w], and the weights and biases of the input and of the hidden state.
template <class T>
Plain<T> plain_recurrent(const Plains<T>& in, bool lstm) {
  const std::int64_t steps = in[0].size(1);
  const std::int64_t h = in[2].size(1);
  Plain<T> y({in[0].size(0), steps, h});
  for (std::int64_t b = 0; b < in[0].size(0); ++b) {
    std::vector<T> state(static_cast<std::size_t>(h));
    std::vector<T> cell(state);
    for (std::int64_t t = 0; t < steps; ++t) {
      const T* const x = &in[0][(b * steps + t) * in[0].size(2)];
      std::vector<T> next(state);
      for (std::int64_t j = 0; j < h; ++j) {
        const auto of_x = [&](int gate) { return product(in[1], gate * h + j, x, &in[3]); };
        const auto of_h = [&](int gate) {
          return product(in[2], gate * h + j, state.data(), &in[4]);
        };
        const auto k = static_cast<std::size_t>(j);
        if (lstm) {
          const T kept = sigmoid(of_x(1) + of_h(1)) * cell[k];
          cell[k] = kept + sigmoid(of_x(0) + of_h(0)) * std::tanh(of_x(2) + of_h(2));
          next[k] = sigmoid(of_x(3) + of_h(3)) * std::tanh(cell[k]);
        } else {
          const T update = sigmoid(of_x(1) + of_h(1));
          const T fresh = std::tanh(of_x(2) + sigmoid(of_x(0) + of_h(0)) * of_h(2));
          next[k] = (1.0 - update) * fresh + update * state[k];
        }
        y[(b * steps + t) * h + j] = next[k];
      }
      state = next;
    }
  }
  return y;
}

/// q[batch, queries, width] of `heads` heads, memory[batch, keys, 2 * width].
template <class T>
Plain<T> plain_attention(const Plains<T>& in, std::int64_t heads, bool causal) {
  const std::int64_t queries = in[0].size(1);
  const std::int64_t keys = in[1].size(1);
  const std::int64_t width = in[0].size(2);
  const std::int64_t f = width / heads;
  Plain<T> y(in[0].extents);
  for (std::int64_t b = 0; b < in[0].size(0); ++b) {
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t seen = causal ? i + keys - queries + 1 : keys;
        const T* const q = &in[0][(b * queries + i) * width + h * f];
        const auto at = [&](std::int64_t key) {
          return &in[1][(b * keys + key) * 2 * width + h * f];
        };
        std::vector<T> p;
        for (std::int64_t key = 0; key < seen; ++key) {
          T sum(0);
          for (std::int64_t k = 0; k < f; ++k) sum += q[k] * at(key)[k];
          p.push_back(sum / std::sqrt(static_cast<double>(f)));
        }
        softmax(p);
        for (std::int64_t key = 0; key < seen; ++key) {
          for (std::int64_t k = 0; k < f; ++k) {
            y[(b * queries + i) * width + h * f + k] +=
                p[static_cast<std::size_t>(key)] * at(key)[width + k];
          }
        }
      }
    }
  }
  return y;
}

/// x[n, c, h, w]: the largest of each window, or their mean.
template <class T>
Plain<T> plain_pool(const Plains<T>& in, std::int64_t kernel, std::int64_t stride, bool largest) {
  const Plain<T>& x = in[0];
  const std::int64_t rows = (x.size(2) - kernel) / stride + 1;
  const std::int64_t columns = (x.size(3) - kernel) / stride + 1;
  Plain<T> y({x.size(0), x.size(1), rows, columns});
  for (std::int64_t plane = 0; plane < x.size(0) * x.size(1); ++plane) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        T most(0);
        T sum(0);
        for (std::int64_t i = 0; i < kernel * kernel; ++i) {
          const T value = x[(plane * x.size(2) + r * stride + i / kernel) * x.size(3) + c * stride +
                            i % kernel];
          sum += value / static_cast<double>(kernel * kernel);
          if (i == 0 || real_of(value) > real_of(most)) most = value;
        }
        y[(plane * rows + r) * columns + c] = largest ? most : sum;
      }
    }
  }
  return y;
}

/// x[n, c, h, w], weight[m, c, k, k], bias[m], of stride 1 and no padding.
template <class T>
Plain<T> plain_conv2d(const Plains<T>& in) {
  const Plain<T>& x = in[0];
  const Plain<T>& w = in[1];
  const std::int64_t k = w.size(2);
  const std::int64_t rows = x.size(2) - k + 1;
  const std::int64_t columns = x.size(3) - k + 1;
  Plain<T> y({x.size(0), w.size(0), rows, columns});
  std::int64_t at = 0;
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    for (std::int64_t m = 0; m < w.size(0); ++m) {
      for (std::int64_t place = 0; place < rows * columns; ++place, ++at) {
        y[at] = in[2][m];
        for (std::int64_t c = 0; c < x.size(1); ++c) {
          for (std::int64_t i = 0; i < k * k; ++i) {
            y[at] += w[(m * x.size(1) + c) * k * k + i] *
                     x[((n * x.size(1) + c) * x.size(2) + place / columns + i / k) * x.size(3) +
                       place % columns + i % k];
          }
        }
      }
    }
  }
  return y;
}

}  // namespace rematch::testing
