#include "engine/kernels/recurrent.h"

#include <algorithm>

#include "engine/cpu/block_sizes.h"
#include "engine/cpu/product.h"
#include "engine/cpu/scratch.h"
#include "engine/cpu/threads.h"

namespace rematch::cpu {

namespace {

using math::RecurrentGradients;
using math::RecurrentShape;
using math::RecurrentState;
using math::RecurrentWeights;

std::int64_t samples_at_a_time(const RecurrentShape& s) {
  return std::clamp<std::int64_t>(blocks::kRecurrentKept / (s.steps * s.kept()), 1, s.batch);
}

/// Calls work(first, samples) for all samples, in order.
template <class Work>
void for_each_block(const RecurrentShape& s, const Work& work) {
  const std::int64_t most = samples_at_a_time(s);
  for (std::int64_t first = 0; first < s.batch; first += most) {
    work(first, std::min(most, s.batch - first));
  }
}

/// work(sample, unit) for all of a step, on threads().
template <class Work>
void for_each_unit(const RecurrentShape& s, std::int64_t samples, const Work& work) {
  parallel(samples * s.features, blocks::kRecurrentUnits, 16,
           [&](std::int64_t begin, std::int64_t end) {
             for (std::int64_t e = begin; e < end; ++e) work(e / s.features, e % s.features);
           });
}

/// The parts that the state before step t has in the gates, rows() for each sample.
template <typename T>
void hidden_parts(const RecurrentShape& s, std::int64_t first, std::int64_t samples, std::int64_t t,
                  const RecurrentWeights<T>& w, const T* y, T* parts) {
  if (t > 0) {
    const T* const before = y + (first * s.steps + t - 1) * s.features;
    product_transposed<T>(s.rows(), samples, s.features, {w.hidden, s.features, 1},
                          {before, 1, s.steps * s.features}, w.hidden_bias, parts, s.rows());
    return;
  }
  for (std::int64_t i = 0; i < samples; ++i) {
    T* const row = parts + i * s.rows();
    if (w.hidden_bias != nullptr) {
      std::copy_n(w.hidden_bias, s.rows(), row);
    } else {
      std::fill_n(row, s.rows(), T(0));
    }
  }
}

/// The backward of one block of samples; the sums of the weights' gradients go on from those of
/// the blocks before it.
template <typename T>
struct BlockBackward {
  const RecurrentShape& s;
  const T* gy;
  const T* x;
  const RecurrentWeights<T>& w;
  const T* y;
  const RecurrentState<T>& state;
  const RecurrentGradients<T>& to;

  void run(std::int64_t first, std::int64_t samples) const {
    T* const gates = scratch<T, 3>(samples_at_a_time(s) * s.steps * s.kept());
    through_time(first, samples, gates);
    const std::int64_t rows = samples * s.steps;
    if (to.x != nullptr) {
      product<T>(rows, s.width, s.rows(), {gates, s.kept(), 1}, {w.input, s.width, 1}, false,
                 to.x + first * s.steps * s.width, s.width);
    }
    if (to.input != nullptr) {
      product<T>(s.rows(), s.width, rows, {gates, 1, s.kept()},
                 {x + first * s.steps * s.width, s.width, 1}, true, to.input, s.width);
    }
    if (to.hidden != nullptr && s.steps > 1) {
      for (std::int64_t i = 0; i < samples; ++i) add_to_hidden(first + i, sample(gates, i));
    }
    for (std::int64_t g = 0; g < s.gates(); ++g) {
      const std::int64_t at = g * s.features;
      if (to.input_bias != nullptr) add_rows(rows, gates + at, to.input_bias + at);
      if (to.hidden_bias != nullptr) add_rows(rows, gates + s.hidden_part(g), to.hidden_bias + at);
    }
  }

 private:
  T* sample(T* gates, std::int64_t i) const { return gates + i * s.steps * s.kept(); }

  void through_time(std::int64_t first, std::int64_t samples, T* gates) const {
    const std::int64_t units = samples * s.features;
    T* const carries = scratch<T, 4>(samples_at_a_time(s) * s.features);
    T* const sums = scratch<T, 5>(samples_at_a_time(s) * s.features);
    std::fill_n(carries, units, T(0));
    std::fill_n(sums, units, T(0));
    for (std::int64_t t = s.steps - 1; t >= 0; --t) {
      if (t + 1 < s.steps) sum_over_gates(samples, gates + (t + 1) * s.kept(), carries, sums);
      for_each_unit(s, samples, [=, this](std::int64_t i, std::int64_t j) {
        const std::int64_t e = i * s.features + j;
        math::recurrent_unit_gradient(s, first + i, t, j, gy, y, state, sums[e], carries[e],
                                      sample(gates, i) + t * s.kept());
      });
    }
  }

  void sum_over_gates(std::int64_t samples, const T* step, const T* carries, T* sums) const {
    const std::int64_t units = samples * s.features;
    for (std::int64_t e = 0; e < units; ++e) sums[e] = s.start(carries[e]);
    for (std::int64_t g = 0; g < s.gates(); ++g) {
      product<T>(samples, s.features, s.features, {step + s.hidden_part(g), s.steps * s.kept(), 1},
                 {w.hidden + g * s.features * s.features, s.features, 1}, true, sums, s.features);
    }
  }

  /// Adds the products of a sample's steps after its first, whose state before is zero.
  void add_to_hidden(std::int64_t b, const T* gates) const {
    for (std::int64_t g = 0; g < s.gates(); ++g) {
      product<T>(s.features, s.features, s.steps - 1,
                 {gates + s.kept() + s.hidden_part(g), 1, s.kept()},
                 {y + b * s.steps * s.features, s.features, 1}, true,
                 to.hidden + g * s.features * s.features, s.features);
    }
  }

  void add_rows(std::int64_t rows, const T* gates, T* sums) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < s.features; ++j) sums[j] += gates[r * s.kept() + j];
    }
  }
};

}  // namespace

template <typename T>
void recurrent_forward(const RecurrentShape& s, const T* x, const RecurrentWeights<T>& w,
                       const RecurrentState<T>& state, T* y) {
  product_transposed<T>(s.rows(), s.batch * s.steps, s.width, {w.input, s.width, 1},
                        {x, 1, s.width}, w.input_bias, state.gates, s.kept());
  for_each_block(s, [&](std::int64_t first, std::int64_t samples) {
    T* const parts = scratch<T, 3>(samples_at_a_time(s) * s.rows());
    for (std::int64_t t = 0; t < s.steps; ++t) {
      hidden_parts(s, first, samples, t, w, y, parts);
      for_each_unit(s, samples, [&, t](std::int64_t i, std::int64_t j) {
        T hidden[4] = {};
        for (std::int64_t g = 0; g < s.gates(); ++g) {
          hidden[g] = parts[i * s.rows() + g * s.features + j];
        }
        math::recurrent_unit(s, first + i, t, j, hidden, state, y);
      });
    }
  });
}

template <typename T>
void recurrent_backward(const RecurrentShape& s, const T* gy, const T* x,
                        const RecurrentWeights<T>& weights, const T* y,
                        const RecurrentState<T>& state, const RecurrentGradients<T>& to) {
  const auto clear = [](T* sums, std::int64_t count) {
    if (sums != nullptr) std::fill_n(sums, count, T(0));
  };
  clear(to.input, s.rows() * s.width);
  clear(to.hidden, s.rows() * s.features);
  clear(to.input_bias, s.rows());
  clear(to.hidden_bias, s.rows());
  const BlockBackward<T> backward{s, gy, x, weights, y, state, to};
  for_each_block(s,
                 [&](std::int64_t first, std::int64_t samples) { backward.run(first, samples); });
}

REMATCH_RECURRENT_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
