#include "properties/rounding/analysis.h"

#include <algorithm>
#include <cmath>

#include "engine/math/update.h"
#include "properties/bounds/functions.h"
#include "properties/layers/layer.h"
#include "properties/record/case_data.h"
#include "properties/rounding/losses.h"

namespace rematch::rounding {
namespace {

/// Limit on the derivatives of one forward. More are hardly ever needed, and take milliseconds.
constexpr std::size_t kMostEdges = std::size_t{1} << 17;

using Array = std::vector<Bounded>;

/// Autocast may work in bfloat16 anywhere. The roundings of the reference, which works in float64,
/// are added. Numbers below the smallest normal one may be flushed to zero.
Format format_of(const Case& c) {
  if (c.dtype != DType::float32) return {0x1p-52, 0x1p-1022, 0x1p1023};
  const bool low = c.protocol.autocast != AutocastSpan::off;
  return {(low ? 0x1p-8 : 0x1p-24) + 0x1p-53, 0x1p-126, 0x1p127};
}

bool is_determined_case(const Case& c) {
  // A large scale overflows in some formats and not in others.
  if (c.protocol.loss_scale != 0) return false;
  const bool trial = c.protocol.failure.kind != FailureKind::none;
  return std::all_of(c.layers.begin(), c.layers.end(), [&](const LayerSpec& l) {
    const bool leaves_statistics = trial && trains_in(l, c.protocol.train) && layer_of(l).stateful;
    return layer_of(l).bounds != nullptr && !draws_in(l, c.protocol.train) && !leaves_statistics;
  });
}

Array exact(const std::vector<double>& values) {
  Array array;
  for (const double v : values) array.push_back({v, 0});
  return array;
}

/// A plain run of a case with bounds: one analysis for each forward with its backward.
class Run {
 public:
  Run(const Case& c, const Geometry& g, const std::vector<int>& detached)
      : c_(c),
        p_(c.protocol),
        g_(g),
        detached_(c.layers.size(), false),
        inputs_{c.seed, kInputStream, 0},
        targets_{c.seed, kTargetStream, 0} {
    for (const int layer : detached) detached_[static_cast<std::size_t>(layer)] = true;
    const Shape shape = g.shape_of(g.live.back().front(), Shape(c.input));
    rows_ = Shape{shape[0], shape.elements() / shape[0]};
    Generator generator{c.seed, kParameterStream, 0};
    for (const ParameterInfo& info : g.parameters) {
      Tensor p = Tensor::empty(info.shape, c.dtype);
      fill_data(p, c.data, info.low, info.high, generator);
      parameters_.push_back(exact(p.to_vector()));
    }
    for (const ParameterInfo& info : g.buffers) {
      buffers_.emplace_back(static_cast<std::size_t>(info.shape.elements()), Bounded{info.low, 0});
    }
    gradients_.resize(parameters_.size());
    states_.resize(parameters_.size());
    squares_.resize(parameters_.size());
  }

  std::vector<BoundedArray> go() {
    if (p_.failure.kind != FailureKind::none) {
      draw_inputs();
      if (p_.failure.kind != FailureKind::forward_throws) make_target(c_, rows_, targets_);
    }
    for (int step = 0; step < p_.steps; ++step) {
      if (step == 0 || p_.zero_grad) begin_gradients(step == 0 && p_.prior_gradients ? 1 : 0);
      for (int m = 0; m < p_.microbatches; ++m) run_forward(step, m);
      note_all(Quantity::parameter_gradient, step, gradients_);
      if (p_.clip != 0) clip();
      update(step);
      note_all(Quantity::parameter, step, parameters_);
      note_all(Quantity::buffer, step, buffers_);
    }
    if (p_.reevaluate) {
      Forward f(*this);
      const Values y = f.layers(draw_inputs(), false);
      observe(Quantity::reevaluation, p_.steps - 1, 0, 0, f.numbers(y.back().front()));
    }
    return std::move(seen_);
  }

 private:
  /// The outputs of each layer; first the model's inputs.
  using Values = std::vector<std::vector<Vars>>;

  std::vector<std::vector<double>> draw_inputs() {
    std::vector<std::vector<double>> inputs;
    for (int i = 0; i < g_.inputs; ++i) inputs.push_back(make_input(c_, inputs_).to_vector());
    return inputs;
  }

  Bounds new_bounds() const { return {format_of(c_), kMostEdges}; }

  struct Forward {
    explicit Forward(const Run& whole) : run(whole), bounds(whole.new_bounds()) {
      for (const Array& p : whole.parameters_) parameters.push_back(leaves(p));
      for (const Array& b : whole.buffers_) buffers.push_back(leaves(b));
    }

    Vars leaves(const Array& numbers) {
      Vars vars;
      for (const Bounded& n : numbers) vars.push_back(bounds.leaf(n));
      return vars;
    }

    Array numbers(const Vars& vars) const {
      Array array;
      for (const Bounds::Var v : vars) array.push_back(bounds[v]);
      return array;
    }

    static const Vars& value(const Values& values, ValueRef ref) {
      return values[static_cast<std::size_t>(ref.layer + 1)][static_cast<std::size_t>(ref.output)];
    }

    Values layers(const std::vector<std::vector<double>>& inputs, bool train) {
      Values values(1);
      for (const std::vector<double>& input : inputs) {
        values.front().push_back(leaves(exact(input)));
      }
      std::size_t next_buffer = 0;
      for (int i = 0; i < static_cast<int>(run.c_.layers.size()); ++i) {
        const auto index = static_cast<std::size_t>(i);
        const LayerSpec& spec = run.c_.layers[index];
        LayerRun l{bounds,
                   spec,
                   trains_in(spec, train),
                   run.g_.shape_of({i - 1, 0}, Shape(run.c_.input)),
                   spec.from.empty() ? Shape() : run.g_.shape_of(spec.from[0], Shape(run.c_.input)),
                   run.g_.outputs[index][0],
                   {values.back().front()},
                   {}};
        for (const ValueRef& from : spec.from) l.operands.push_back(value(values, from));
        for (const int p : run.g_.layer_parameters[index]) {
          const auto at = static_cast<std::size_t>(p);
          l.parameters.push_back(run.detached_[index] ? leaves(run.parameters_[at])
                                                      : parameters[at]);
        }
        const std::size_t first = next_buffer;
        while (next_buffer < buffers.size() && run.g_.buffers[next_buffer].layer == i) {
          l.buffers.push_back(buffers[next_buffer++]);
        }
        values.push_back(layer_of(l.spec).bounds(l));
        std::copy(l.buffers.begin(), l.buffers.end(),
                  buffers.begin() + static_cast<std::ptrdiff_t>(first));
      }
      return values;
    }

    const Run& run;
    Bounds bounds;
    std::vector<Vars> parameters;
    std::vector<Vars> buffers;
  };

  void observe(Quantity quantity, int step, int microbatch, int index, Array numbers) {
    seen_.push_back({quantity, step, microbatch, index, std::move(numbers)});
  }

  void note_all(Quantity quantity, int step, const std::vector<Array>& arrays) {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      observe(quantity, step, 0, static_cast<int>(i), arrays[i]);
    }
  }

  void run_forward(int step, int microbatch) {
    Forward f(*this);
    const Values values = f.layers(draw_inputs(), p_.train);
    const auto& outputs = g_.live.back();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      observe(Quantity::output, step, microbatch, static_cast<int>(i),
              f.numbers(Forward::value(values, outputs[i])));
    }
    std::vector<Array> of_inputs(values.front().size(), Array(values.front().front().size()));
    for (std::size_t k = 0; k < (p_.auxiliary_losses ? outputs.size() : 1); ++k) {
      const Bounds::Var loss = loss_of(f.bounds, Forward::value(values, outputs[k]), k);
      observe(Quantity::loss, step, microbatch, static_cast<int>(k), {f.bounds[loss]});
      const std::vector<Bounded> found = f.bounds.gradients(loss);
      for (std::size_t i = 0; i < of_inputs.size(); ++i) {
        add(found, values.front()[i], of_inputs[i]);
      }
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (add(found, f.parameters[i], gradients_[i])) has_gradient_[i] = true;
      }
    }
    for (std::size_t i = 0; i < of_inputs.size(); ++i) {
      observe(Quantity::input_gradient, step, microbatch, static_cast<int>(i),
              std::move(of_inputs[i]));
    }
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i] = f.numbers(f.buffers[i]);
  }

  Bounds::Var loss_of(Bounds& bounds, const Vars& output, std::size_t index) {
    if (index > 0) return mean_squared_error(bounds, output, std::vector<double>(output.size(), 0));
    const std::vector<double> target = make_target(c_, rows_, targets_).to_vector();
    return p_.loss == LossKind::mse ? mean_squared_error(bounds, output, target)
                                    : cross_entropy(bounds, output, target);
  }

  /// Adds the gradients of `vars` to a sum, once for each backward, and says whether there are any.
  /// In which order the uses of a parameter and the forwards of a step are added up is open: every
  /// addition is charged for.
  bool add(const std::vector<Bounded>& found, const Vars& vars, Array& sum) const {
    Bounds t = new_bounds();
    bool any = false;
    for (std::size_t i = 0; i < vars.size(); ++i) {
      const Bounded g = found[static_cast<std::size_t>(vars[i])];
      if (g.error == 0) continue;
      any = true;
      for (int backward = 0; backward < p_.backwards; ++backward) {
        sum[i] = t[t.plus(t.leaf(sum[i])).plus(t.leaf(g)).sum()];
      }
    }
    return any;
  }

  void begin_gradients(double prior) {
    has_gradient_.assign(parameters_.size(), prior != 0);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      gradients_[i].assign(parameters_[i].size(), Bounded{prior, 0});
    }
  }

  void clip() {
    Bounds t = new_bounds();
    Vars norms;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (g_.parameters[i].frozen || !has_gradient_[i]) continue;
      for (const Bounded& b : gradients_[i]) {
        const Bounds::Var g = t.leaf(b);
        t.plus_product(g, g);
      }
      norms.push_back(root(t, t.sum()));
    }
    if (norms.empty()) return;
    for (const Bounds::Var n : norms) t.plus_product(n, n);
    const Bounds::Var norm = t.plus(root(t, t.sum())).plus(t.leaf({1e-6, 0})).sum();
    // min(1, f) is 1 - max(0, 1 - f).
    const Bounds::Var most = t.leaf({p_.clip, 0});
    const Bounds::Var factor = t.plus_product(most, reciprocal(t, norm)).sum();
    const Bounds::Var one = t.leaf({1, 0});
    const Bounds::Var below = t.rectified(t.plus(one).plus(factor, -1).sum(), 0);
    const Bounds::Var by = t.plus(one).plus(below, -1).sum();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      for (Bounded& b : gradients_[i]) b = t[t.plus_product(t.leaf(b), by).sum()];
    }
  }

  void update(int step) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (g_.parameters[i].frozen || !has_gradient_[i]) continue;
      Bounds t = new_bounds();
      for (std::size_t j = 0; j < parameters_[i].size(); ++j) {
        const Bounds::Var p = t.leaf(parameters_[i][j]);
        const Bounds::Var g = t.leaf(gradients_[i][j]);
        parameters_[i][j] = p_.optimizer == OptimizerKind::adam ? t[adam(t, p, g, step, i, j)]
                                                                : t[sgd(t, p, g, step, i, j)];
      }
    }
  }

  Bounds::Var sgd(Bounds& t, Bounds::Var p, Bounds::Var g, int step, std::size_t i, std::size_t j) {
    states_[i].resize(parameters_[i].size());
    Bounds::Var direction = g;
    if (p_.momentum != 0 && step > 0) {
      direction = t.plus(t.leaf(states_[i][j]), p_.momentum).plus(g).sum();
    }
    states_[i][j] = t[direction];
    return t.plus(p).plus(direction, -p_.learning_rate).sum();
  }

  Bounds::Var adam(Bounds& t, Bounds::Var p, Bounds::Var g, int step, std::size_t i,
                   std::size_t j) {
    constexpr double kFirst = 0.9;
    constexpr double kSecond = 0.999;
    constexpr double kEpsilon = 1e-8;
    states_[i].resize(parameters_[i].size());
    squares_[i].resize(parameters_[i].size());
    const Bounds::Var m = t.plus(t.leaf(states_[i][j]), kFirst).plus(g, 1 - kFirst).sum();
    const Bounds::Var v =
        t.plus(t.leaf(squares_[i][j]), kSecond).plus_product(g, g, 1 - kSecond).sum();
    states_[i][j] = t[m];
    squares_[i][j] = t[v];
    const double of_first = 1 - math::integer_power(kFirst, step + 1);
    const double of_second = std::sqrt(1 - math::integer_power(kSecond, step + 1));
    const Bounds::Var deviation =
        t.plus(root(t, v), 1 / of_second).plus(t.leaf({kEpsilon, 0})).sum();
    const Bounds::Var scale = reciprocal(t, deviation);
    return t.plus(p).plus_product(m, scale, -p_.learning_rate / of_first).sum();
  }

  const Case& c_;
  const ProtocolSpec& p_;
  const Geometry& g_;
  std::vector<bool> detached_;
  Generator inputs_;
  Generator targets_;
  Shape rows_;
  std::vector<Array> parameters_;
  std::vector<Array> buffers_;
  std::vector<Array> gradients_;
  std::vector<bool> has_gradient_;
  /// The optimizer's state: momenta, or first and second moments.
  std::vector<Array> states_;
  std::vector<Array> squares_;
  std::vector<BoundedArray> seen_;
};

}  // namespace

std::optional<std::vector<BoundedArray>> analyse(const Case& c, const Geometry& geometry,
                                                 const std::vector<int>& detached) {
  if (!is_determined_case(c)) return std::nullopt;
  try {
    return Run(c, geometry, detached).go();
  } catch (const TooLarge&) {
    return std::nullopt;
  }
}

}  // namespace rematch::rounding
