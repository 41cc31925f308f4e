#include "golden/numerics/testing/recurrent_bounds.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace rematch::golden {
namespace {

/// The largest magnitude and the largest error of some numbers that are computed alike.
struct Size {
  double most = 0;
  double error = 0;
};

Size exact(double most) { return {most, 0}; }

Size larger(const Size& a, const Size& b) {
  return {std::max(a.most, b.most), std::max(a.error, b.error)};
}

/// Computes with sizes to first order, as bounds.cpp does with letters.
class Sizes {
 public:
  explicit Sizes(double u) : u_(u) {}

  Size times(const Size& a, const Size& b) const {
    return {a.most * b.most, a.most * b.error + a.error * b.most + u_ * a.most * b.most};
  }
  Size plus(const Size& a, const Size& b) const {
    return {a.most + b.most, a.error + b.error + u_ * (a.most + b.most)};
  }
  /// A sum of n, each of which may itself be one of `parts`, in any order.
  Size sum(double n, const Size& a, double parts = 1) const {
    return {n * a.most, n * a.error + (n * parts + 2) * u_ * n * a.most};
  }
  /// Functions are within 3 ulp; sigmoid' is at most 1/4, tanh' at most 1.
  Size sigmoid(const Size& x) const { return {1 / (1 + std::exp(-x.most)), x.error / 4 + 6 * u_}; }
  Size tanh(const Size& x) const { return {std::tanh(x.most), x.error + 6 * u_}; }
  /// s (1 - s), and 1 - t t, from the functions' values.
  Size sigmoid_slope(const Size& s) const { return {0.25, s.error + 3 * u_}; }
  Size tanh_slope(const Size& t) const { return {1, 2 * t.error + 3 * u_}; }
  /// 1 - z of a sigmoid, as large as z may be. It may also be distributed: two roundings more.
  Size rest(const Size& z) const { return {z.most, z.error + 3 * u_}; }

 private:
  double u_;
};

/// What a step's backward reads of it: sizes of its gates and of its new values, of the part of the
/// hidden state alone, of the states before and after it, and of an LSTM's cells likewise.
struct Step {
  Size gate;
  Size fresh;
  Size own;
  Size before;
  Size after;
  Size cell_before;
  Size cell;
};

/// Sizes of the gradients of the gates' parts, gate by gate.
struct Parts {
  std::vector<Size> input;
  std::vector<Size> hidden;
};

struct Recurrence {
  const Entry& entry;
  Sizes s{unit_roundoff(entry.dtype)};
  bool lstm = entry.op == "lstm";
  double features = static_cast<double>(entry.inputs.at("weight_hh").shape()[1]);
  Size weight = of("weight_hh");

  Size of(const char* name) const {
    const auto found = entry.inputs.find(name);
    return exact(found == entry.inputs.end() ? 0 : largest(found->second));
  }
  double extent(int dimension) const {
    return static_cast<double>(entry.inputs.at("x").shape()[dimension]);
  }

  Step forward(const Step& last) const {
    Step step;
    step.before = last.after;
    step.cell_before = last.cell;
    step.own = s.plus(s.sum(features, s.times(step.before, weight)), of("bias_hh"));
    const Size in = s.plus(s.sum(extent(2), s.times(of("x"), of("weight_ih"))), of("bias_ih"));
    const Size sum = s.plus(in, step.own);
    step.gate = s.sigmoid(sum);
    if (lstm) {
      step.fresh = s.tanh(sum);
      step.cell = s.plus(s.times(step.gate, step.cell_before), s.times(step.gate, step.fresh));
      step.after = s.times(step.gate, s.tanh(step.cell));
      return step;
    }
    step.fresh = s.tanh(s.plus(in, s.times(step.gate, step.own)));
    // A mean of n and the state before, whose errors z weighs alike; what z is off by counts with
    // their difference.
    const Size mean = larger(step.fresh, step.before);
    const Size off = s.times(step.gate, exact(step.fresh.most + step.before.most));
    step.after = {mean.most, s.plus(mean, off).error};
    return step;
  }

  /// From the gradient gh of the state after a step; `carry` is what the step after it hands to the
  /// state before that one, or to an LSTM's cell, past the gates.
  Parts backward(const Step& step, const Size& gh, Size& carry) const {
    const Size& gate = step.gate;
    const Size& n = step.fresh;
    const Size slope = s.sigmoid_slope(gate);
    if (lstm) {
      const Size top = s.tanh(step.cell);
      const Size gc = s.plus(carry, s.times(s.times(gh, gate), s.tanh_slope(top)));
      const Size of_output = s.times(s.times(gh, top), slope);
      const Size of_forget = s.times(s.times(gc, step.cell_before), slope);
      const Size of_input = s.times(s.times(gc, n), slope);
      const Size of_new = s.times(s.times(gc, gate), s.tanh_slope(n));
      carry = s.times(gc, gate);
      const std::vector<Size> all{of_input, of_forget, of_new, of_output};
      return {all, all};
    }
    const Size gn = s.times(s.times(gh, s.rest(gate)), s.tanh_slope(n));
    const Size of_reset = s.times(s.times(gn, step.own), slope);
    const Size of_update = s.times(s.times(gh, s.plus(step.before, n)), slope);
    carry = s.times(gh, gate);
    return {{of_reset, of_update, gn}, {of_reset, of_update, s.times(gn, gate)}};
  }

  /// A sum over the rows of a weight.
  Size over_rows(const std::vector<Size>& gates, const Size& row) const {
    Size gate;
    for (const Size& g : gates) gate = s.plus(gate, s.times(g, row));
    return s.sum(features, gate, static_cast<double>(gates.size()));
  }
};

}  // namespace

Bounds recurrent_bounds(const Entry& entry) {
  const Recurrence r{entry};
  const Sizes& s = r.s;
  const auto steps = static_cast<std::size_t>(r.extent(1));
  std::vector<Step> forward;
  Bounds b;
  for (std::size_t t = 0; t < steps; ++t) {
    forward.push_back(r.forward(t == 0 ? Step{} : forward.back()));
    b.output = std::max(b.output, forward.back().after.error);
  }
  const Size gy = exact(largest(entry.output_gradients[0]));
  Size of_input;
  Size of_hidden;
  Size of_x;
  Size later;
  Size carry;
  Size states;
  for (std::size_t t = steps; t-- > 0;) {
    const Parts parts = r.backward(forward[t], s.plus(gy, later), carry);
    later = r.over_rows(parts.hidden, r.weight);
    if (!r.lstm) later = s.plus(later, carry);
    for (const Size& g : parts.input) of_input = larger(of_input, g);
    for (const Size& g : parts.hidden) of_hidden = larger(of_hidden, g);
    of_x = larger(of_x, r.over_rows(parts.input, r.of("weight_ih")));
    states = larger(states, forward[t].before);
  }
  const double samples = r.extent(0) * r.extent(1);
  b.gradients = {{"x", of_x.error},
                 {"weight_ih", s.sum(samples, s.times(of_input, r.of("x"))).error},
                 {"weight_hh", s.sum(samples, s.times(of_hidden, states)).error},
                 {"bias_ih", s.sum(samples, of_input).error},
                 {"bias_hh", s.sum(samples, of_hidden).error}};
  return b;
}

}  // namespace rematch::golden
