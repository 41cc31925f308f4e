#include "properties/forecast/reach.h"

#include <algorithm>
#include <array>

#include "properties/layers/custom_layer.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

using Flags = std::vector<bool>;

bool any(const Flags& flags) { return std::find(flags.begin(), flags.end(), true) != flags.end(); }

/// Of a law that is about the whole run.
constexpr int kAnywhere = -2;

std::size_t at_of(int i) { return static_cast<std::size_t>(i); }

/// Whether values that the layer draws, or how many, depend on its operand.
bool draws_by_values(const LayerSpec& l) { return layer_of(l).noise_depends_on_values; }

bool has_state(const LayerSpec& l) {
  return l.layer != nullptr ? l.layer->state : layer_of(l).stateful;
}

/// Whether its outputs in training may depend on its state: of a custom layer nobody says.
bool reads_state(const LayerSpec& l) {
  return l.layer != nullptr ? l.layer->state : layer_of(l).reads_state;
}

}  // namespace

std::string_view to_string(Wrong wrong) {
  constexpr std::array<std::string_view, kWrongCount> kNames{
      "recomputed", "forward", "gradient", "state",     "stream",  "weight",  "detached",
      "runs",       "zeros",   "held",     "unwritten", "failure", "compiled"};
  return kNames[static_cast<std::size_t>(wrong)];
}

/// Flags say what may differ from the plain run.
class Reach::Run {
 public:
  Run(const Case& c, const Geometry& g, const Flags& sources, Wrongs wrong, Reach& reach)
      : c_(c),
        g_(g),
        at_(sources),
        wrong_(with_parts(wrong)),
        is_compiled_(wrong.contains(Wrong::compiled)),
        reach_(reach),
        segments_(segments_of(c)),
        begins_(c.layers.size(), static_cast<int>(c.layers.size())),
        detached_(c.layers.size()),
        layers_(static_cast<int>(c.layers.size())),
        parameters_(g.parameters.size()),
        gradients_(g.parameters.size()),
        states_(c.layers.size()),
        streams_(at_of(streams_of(c))),
        forwards_(at_of(c.protocol.microbatches)) {
    note_plain_runs();
    if (!wrong.contains(Wrong::detached)) return;
    const auto first = std::find(sources.begin(), sources.end(), true);
    std::copy(first, sources.end(), detached_.begin() + (first - sources.begin()));
    detach_behind(static_cast<int>(first - sources.begin()), segments_);
  }

  void run() {
    const ProtocolSpec& p = c_.protocol;
    if (p.failure.kind != FailureKind::none) {
      forward(-1, 0);
      backward(-1, 0);
      parameters_.assign(parameters_.size(), false);
      gradients_.assign(gradients_.size(), false);
      if (wrong_.contains(Wrong::failure) && p.failure.kind == FailureKind::recomputation_throws) {
        streams_.assign(streams_.size(), true);
        states_.assign(states_.size(), true);
      }
    }
    for (int step = 0; step < p.steps; ++step) {
      for (int m = 0; m < p.microbatches; ++m) {
        forward(step, m);
        if (!p.forwards_first) backward(step, m);
      }
      for (int m = p.microbatches - 1; p.forwards_first && m >= 0; --m) backward(step, m);
      optimize(step);
    }
    if (p.reevaluate) evaluate(p.steps - 1);
    note_costs();
  }

 private:
  /// Reentrant segments behind the layer, at any depth, may see nothing that requires grad.
  void detach_behind(int layer, const std::vector<SegmentSpec>& segments) {
    for (const SegmentSpec& s : segments) {
      if (s.begin > layer && s.choice.variant == Variant::reentrant) {
        std::fill(detached_.begin() + s.begin, detached_.begin() + s.end, true);
      }
      detach_behind(layer, s.nested);
    }
  }

  static Wrongs with_parts(Wrongs wrong) {
    if (!wrong.contains(Wrong::compiled)) return wrong;
    wrong.insert(Wrong::recomputed);
    wrong.insert(Wrong::gradient);
    return wrong;
  }

  /// What lies in no segment may be recomputed, too, where a source says so: by a compiler.
  void note_plain_runs() {
    if (is_compiled_) {
      recomputed_.push_back({0, layers_, {}, {}});
      begins_.assign(begins_.size(), 0);
      return;
    }
    std::vector<SegmentSpec> all;
    int begin = 0;
    const auto add_plain = [&](int end) {
      if (begin < end && any(Flags(at_.begin() + begin, at_.begin() + end))) {
        all.push_back({begin, end, {}, {}});
      }
    };
    for (const SegmentSpec& s : segments_) {
      add_plain(s.begin);
      all.push_back(s);
      begin = s.end;
    }
    add_plain(layers_);
    recomputed_.swap(all);
    for (const SegmentSpec& s : recomputed_) {
      std::fill(begins_.begin() + s.begin, begins_.begin() + s.end, s.begin);
    }
  }
  bool is_wrong(Wrong wrong, int layer) const {
    return wrong_.contains(wrong) && at_[at_of(layer)];
  }
  const LayerSpec& spec(int layer) const { return c_.layers[at_of(layer)]; }
  /// Whether by other values, or draws, it computes of other numbers of rows.
  bool decides_shapes(int layer) const {
    const Layer& l = layer_of(spec(layer));
    return l.takes("experts") || l.saves_vary(spec(layer), c_.protocol.train);
  }
  bool draws(int layer) const { return draws_in(spec(layer), c_.protocol.train); }
  std::size_t stream_of(int layer) const { return at_of(spec(layer).stream); }

  void note(std::string_view law, int step, int microbatch, std::size_t index) {
    if (step >= 0) reach_.differ_.emplace(law, step, microbatch, static_cast<int>(index));
  }
  void note_streams(std::string_view law, int step, int microbatch) {
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      if (streams_[s]) note(law, step, microbatch, s);
    }
  }

  /// Whether one of the layer's operands differs, of those that layers from `begin` on made.
  bool operand_differs(int layer, const Flags& values, int begin) const {
    const auto differs = [&](int maker) { return maker >= begin && values[at_of(maker)]; };
    const auto& from = spec(layer).from;
    return (layer > 0 && differs(layer - 1)) ||
           std::any_of(from.begin(), from.end(),
                       [&](const ValueRef& v) { return v.layer >= 0 && differs(v.layer); });
  }
  bool parameter_differs(int layer) const {
    const auto& own = g_.layer_parameters[at_of(layer)];
    return std::any_of(own.begin(), own.end(), [&](int p) { return parameters_[at_of(p)]; });
  }

  void forward(int step, int m) {
    Flags& values = forwards_[at_of(m)];
    values.assign(c_.layers.size(), false);
    for (int i = 0; i < layers_; ++i) {
      const bool operand = operand_differs(i, values, 0);
      bool differs = operand || parameter_differs(i) || is_wrong(Wrong::forward, i) ||
                     recompute_within(i, step, m);
      if (trains_in(spec(i), c_.protocol.train) && has_state(spec(i))) {
        differs = differs || (reads_state(spec(i)) && states_[at_of(i)]);
        if (differs) states_[at_of(i)] = true;
      } else if (states_[at_of(i)]) {
        differs = true;
      }
      if (draws(i)) {
        const bool drawn = streams_[stream_of(i)] || (operand && draws_by_values(spec(i)));
        const bool moved = is_wrong(Wrong::forward, i) && is_wrong(Wrong::stream, i);
        if (moved || (operand && draws_by_values(spec(i)))) streams_[stream_of(i)] = true;
        if (drawn) note("dropout-masks", step, m, at_of(i));
        differs = differs || drawn;
      }
      values[at_of(i)] = differs;
    }
    const std::vector<ValueRef>& outputs = g_.live.back();
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      if (outputs[k].layer < 0 || !values[at_of(outputs[k].layer)]) continue;
      note("outputs", step, m, k);
      if (k == 0 || c_.protocol.auxiliary_losses) note("losses", step, m, k);
    }
    note_streams("rng-after-forward", step, m);
  }

  /// By layer: whether its recomputation computes other values than its forward did. What comes
  /// into a segment was saved.
  Flags recompute(int step, int m) {
    Flags again(c_.layers.size(), false);
    for (auto s = recomputed_.rbegin(); s != recomputed_.rend(); ++s) {
      recompute(s->begin, s->end, step, m, again);
    }
    return again;
  }
  void recompute(int begin, int end, int step, int m, Flags& again) {
    Flags drawn_otherwise(streams_.size(), false);
    for (int i = begin; i < end; ++i) {
      const bool operand = operand_differs(i, again, begin);
      bool differs = operand || is_wrong(Wrong::recomputed, i) || is_wrong(Wrong::forward, i) ||
                     is_wrong(Wrong::weight, i);
      // A compiled backward moves no state, and draws only where a source says so.
      if (draws(i) && (!is_compiled_ || wrong_.contains(Wrong::stream))) {
        const bool moves_otherwise =
            is_wrong(Wrong::recomputed, i) || (operand && draws_by_values(spec(i)));
        if (moves_otherwise || drawn_otherwise[stream_of(i)]) {
          note("dropout-masks", step, m, at_of(i));
          differs = true;
        }
        if (moves_otherwise) drawn_otherwise[stream_of(i)] = true;
        if (is_wrong(Wrong::stream, i)) streams_[stream_of(i)] = true;
      }
      const bool moves = is_wrong(Wrong::state, i) || (operand && !is_compiled_);
      if (has_state(spec(i)) && moves) states_[at_of(i)] = true;
      if (is_wrong(Wrong::weight, i)) {
        for (const int p : g_.layer_parameters[at_of(i)]) parameters_[at_of(p)] = true;
      }
      // The operator that moves the state is seen.
      if (differs || is_wrong(Wrong::state, i)) note("recomputed-values", step, m, at_of(i));
      if (differs && decides_shapes(i)) {
        reach_.differ_.emplace("errors", -1, -1, kAnywhere);
      }
      again[at_of(i)] = differs;
    }
  }
  /// A backward within the forward of a layer asks for what the non-reentrant segment around it
  /// packed, which runs again from its beginning, in the midst of its forward. Returns whether that
  /// gives the layer other values.
  bool recompute_within(int layer, int step, int m) {
    if (spec(layer).layer == nullptr || !spec(layer).layer->backward) return false;
    Flags again(c_.layers.size(), false);
    for (const SegmentSpec& s : segments_) {
      if (layer >= s.begin && layer < s.end && packs(s, layer)) {
        recompute(s.begin, layer + 1, step, m, again);
        return again[at_of(layer)];
      }
    }
    return false;
  }
  static bool packs(const SegmentSpec& s, int layer) {
    return layer >= s.begin && layer < s.end &&
           (s.choice.variant == Variant::non_reentrant ||
            std::any_of(s.nested.begin(), s.nested.end(),
                        [&](const SegmentSpec& inner) { return packs(inner, layer); }));
  }

  void backward(int step, int m) {
    const Flags& values = forwards_[at_of(m)];
    const Flags again = recompute(step, m);
    Flags arriving(c_.layers.size(), false);
    const std::vector<ValueRef>& outputs = g_.live.back();
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const int layer = outputs[k].layer;
      if (layer < 0 || (k > 0 && !c_.protocol.auxiliary_losses)) continue;
      if (values[at_of(layer)]) arriving[at_of(layer)] = true;
    }
    Flags inputs(at_of(g_.inputs), false);
    for (int i = layers_ - 1; i >= 0; --i) {
      const bool saves = !layer_of(spec(i)).identity && !layer_of(spec(i)).view;
      const bool read = values[at_of(i)] || operand_differs(i, values, 0) || again[at_of(i)] ||
                        operand_differs(i, again, begins_[at_of(i)]) || parameter_differs(i);
      const bool differs = arriving[at_of(i)] || (saves && read) || is_wrong(Wrong::gradient, i) ||
                           is_wrong(Wrong::unwritten, i) || detached_[at_of(i)];
      if (!differs) continue;
      for (const int p : g_.layer_parameters[at_of(i)]) gradients_[at_of(p)] = true;
      const auto pass = [&](ValueRef v) {
        (v.layer < 0 ? inputs[at_of(v.output)] : arriving[at_of(v.layer)]) = true;
      };
      pass({i - 1, 0});
      for (const ValueRef& v : spec(i).from) pass(v);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]) note("input-gradients", step, m, i);
    }
    note_streams("rng-after-backward", step, m);
  }

  void optimize(int step) {
    const ProtocolSpec& p = c_.protocol;
    const bool all = (p.clip != 0 || p.loss_scale != 0) && any(gradients_);
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      if (gradients_[i]) note("parameter-gradients", step, 0, i);
      if (gradients_[i] || all) parameters_[i] = true;
      if (parameters_[i]) note("parameters-after-step", step, 0, i);
    }
    for (std::size_t b = 0; b < g_.buffers.size(); ++b) {
      if (states_[at_of(g_.buffers[b].layer)]) note("buffers-after-step", step, 0, b);
    }
    note_streams("rng-after-step", step, 0);
    if (p.zero_grad) gradients_.assign(gradients_.size(), false);
  }

  void evaluate(int step) {
    Flags values(c_.layers.size(), false);
    for (int i = 0; i < layers_; ++i) {
      values[at_of(i)] = operand_differs(i, values, 0) || parameter_differs(i) || states_[at_of(i)];
    }
    const int main = g_.live.back().front().layer;
    if (main >= 0 && values[at_of(main)]) note("reevaluation", step, 0, 0);
  }

  void note_costs() {
    const auto note_all = [&](std::initializer_list<std::string_view> laws) {
      for (const std::string_view law : laws) reach_.differ_.emplace(law, -1, -1, kAnywhere);
    };
    if (wrong_.contains(Wrong::held)) {
      note_all({"saved-bytes", "saved-at-most", "bytes-after-backward", "held-at-most",
                "held-in-backward"});
    }
    if (wrong_.contains(Wrong::unwritten)) note_all({"repeatable"});
    const bool detached = wrong_.contains(Wrong::detached);
    const bool upstream = wrong_.contains(Wrong::zeros) || detached;
    if (!upstream && !wrong_.contains(Wrong::runs)) return;
    for (const SegmentSpec& s : segments_) {
      if (!any(Flags(at_.begin() + s.begin, at_.begin() + s.end))) continue;
      for (int i = upstream ? 0 : s.begin; i < (detached ? layers_ : s.end); ++i) {
        note_runs(i, upstream);
        if (detached && i >= s.begin) note_layer("requires-grad-map", at_of(i));
      }
    }
    // Outputs of the model bear no number of a layer.
    if (detached) reach_.differ_.emplace("requires-grad-map", -1, -1, -1);
    if (upstream) note_all({"absent-gradients"});
  }
  void note_layer(std::string_view law, std::size_t index) {
    reach_.differ_.emplace(law, -1, -1, static_cast<int>(index));
  }
  void note_runs(int layer, bool upstream) {
    for (const std::string_view law : {"executions", "recomputation-order", "dropout-masks",
                                       "recomputed-values", "last-segment", "collectives"}) {
      note_layer(law, at_of(layer));
    }
    if (!upstream) return;
    for (const int p : g_.layer_parameters[at_of(layer)]) note_layer("hooks", at_of(p));
  }

  const Case& c_;
  const Geometry& g_;
  const Flags& at_;
  const Wrongs wrong_;
  const bool is_compiled_;
  Reach& reach_;
  const std::vector<SegmentSpec> segments_;
  std::vector<SegmentSpec> recomputed_;
  /// By layer: where its recomputation begins; behind all layers if it has none.
  std::vector<int> begins_;
  /// By layer: whether gradients of it may be missing.
  Flags detached_;
  const int layers_;
  Flags parameters_;
  Flags gradients_;
  Flags states_;
  Flags streams_;
  /// By microbatch of the step, by layer.
  std::vector<Flags> forwards_;
};

Reach::Reach(const Case& c, const Geometry& geometry, const std::vector<bool>& at, Wrongs wrong) {
  Run(c, geometry, at, wrong, *this).run();
}

bool Reach::contains(std::string_view law, const Site& site) const {
  return differ_.contains({law, site.step, site.microbatch, site.index}) ||
         differ_.contains({law, -1, -1, site.index}) || differ_.contains({law, -1, -1, kAnywhere});
}

}  // namespace rematch
