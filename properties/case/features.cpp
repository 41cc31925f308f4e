#include "properties/case/features.h"

#include <algorithm>
#include <span>
#include <vector>

#include "properties/case/policy.h"
#include "properties/case/rules.h"
#include "properties/layers/blocks.h"
#include "properties/layers/custom_layer.h"
#include "properties/layers/facts_writer.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

// Limits of a case that has no more than a few of anything.
constexpr std::size_t kFewLayers = 24;
constexpr std::size_t kFewValues = 16;
constexpr int kFewUses = 16;
constexpr int kFewForwards = 3;
constexpr int kFewBackwards = 2;
constexpr int kFewLevels = 4;
constexpr int kFewStreams = 3;
constexpr std::int64_t kFewElements = std::int64_t{1} << 18;

/// Calls work(writer) with layer i, which is no custom one.
template <class Work>
auto with_writer(const Case& c, const Geometry& g, int i, const Work& work) {
  const Shape input{std::span(c.input)};
  Facts facts;
  FactsWriter writer(c.layers, i, input, g, c.protocol.train, c.dtype, false, facts);
  return work(writer);
}

std::int64_t drawn(const Case& c, const Geometry& g, int i) {
  return with_writer(c, g, i, [](FactsWriter& w) {
    layer_of(w.spec).facts(w);
    return w.f.drawn;
  });
}

class FeatureScan {
 public:
  FeatureScan(const Case& c, const Geometry& g) : c_(c), g_(g), segments_(segments_of(c)) {}

  FeatureSet run() {
    scan_fields(c_);
    scan_fields(c_.plan);
    scan_fields(c_.protocol);
    scan_layers();
    scan_parameters();
    scan_skips();
    int drawing = 0;
    for (const SegmentSpec& s : segments_) {
      scan_segment(s, 1);
      if (draws(s.begin, s.end)) ++drawing;
    }
    mark(Feature::two_drawing_segments, drawing >= 2);
    mark(Feature::mixed_variants, has(Feature::reentrant) && has(Feature::non_reentrant));
    mark(Feature::frozen_first_block, !frozen_layers(c_, g_).empty());
    scan_plan();
    scan_protocol();
    mark(Feature::more_than_a_few, is_large());
    mark(Feature::large_values_check, has_large_tensor() && has(Feature::values_check));
    return found_;
  }

 private:
  void mark(Feature feature, bool present) {
    if (present) found_.insert(feature);
  }
  bool has(Feature feature) const { return found_.contains(feature); }
  const LayerSpec& layer(int i) const { return c_.layers[static_cast<std::size_t>(i)]; }
  int layers() const { return static_cast<int>(c_.layers.size()); }
  const std::vector<ValueRef>& live(int b) const { return g_.live[static_cast<std::size_t>(b)]; }

  bool draws_at(int i) const { return draws_in(layer(i), c_.protocol.train); }
  std::int64_t drawn_by(int i) const {
    const LayerSpec& l = layer(i);
    // Only the subject knows; one for each element is a guess.
    if (l.layer != nullptr) return g_.outputs[static_cast<std::size_t>(i)].front().elements();
    return drawn(c_, g_, i);
  }
  bool draws(int begin, int end) const {
    for (int i = begin; i < end; ++i) {
      if (draws_at(i)) return true;
    }
    return false;
  }

  /// Features that a field shows by itself.
  template <class S>
  void scan_fields(const S& part) {
    for_each_field(part, [&](const auto& field, const auto& value, const auto& usual) {
      if (field.feature) mark(*field.feature, value != usual);
    });
  }

  void scan_layers() {
    mark(Feature::images, c_.input.size() == 4);
    mark(Feature::many_dimensions, c_.input.size() > 4);
    mark(Feature::one_row, c_.input[0] == 1);
    mark(Feature::sequences, c_.input.size() == 3 || vocabulary_of(c_.layers) > 0);
    for (int i = 0; i < layers(); ++i) {
      const LayerSpec& l = layer(i);
      found_.insert(feature_of(l.kind));
      mark(Feature::in_place, l.in_place);
      mark(Feature::fp8, l.fp8);
      mark(Feature::second_block, works_in_blocks(c_, g_, i));
      mark(Feature::eval_layer, c_.protocol.train && l.eval && l.layer == nullptr);
      mark(Feature::advancing_state, layer_of(l).reads_state && trains_in(l, c_.protocol.train));
      const bool elsewhere = l.layer != nullptr && l.layer->draws_elsewhere;
      mark(Feature::named_stream, draws_at(i) && (l.stream != 0 || elsewhere));
      mark(Feature::odd_size, draws_at(i) && drawn_by(i) % 4 != 0);
      const bool twins = i > 0 && layer_of(layer(i - 1)).identity;
      for (const ValueRef v : l.from) {
        mark(Feature::same_tensor_twice, v.layer == i - 1 && (v.output == 0 || twins));
      }
    }
    for (const ValueRef v : live(layers())) {
      // Values that are live at the end and that no layer reads.
      if (v.output == 0) continue;
      mark(Feature::unused_output, !reads(c_.layers, v));
    }
  }

  /// An embedding is looked up as it is.
  bool casts_weight_twice() const {
    std::vector<int> casts(g_.parameters.size());
    for (int i = 0; i < layers(); ++i) {
      for (const int p : g_.layer_parameters[static_cast<std::size_t>(i)]) {
        casts[static_cast<std::size_t>(p)] += layer_of(layer(i)).low_precision ? 1 : 0;
      }
    }
    return std::any_of(casts.begin(), casts.end(), [](int count) { return count >= 2; });
  }

  void scan_parameters() {
    bool frozen_before = false;
    bool trainable_before = false;
    for (const ParameterInfo& p : g_.parameters) {
      mark(Feature::tied_weight, p.uses >= 2);
      mark(Feature::tied_three_times, p.uses >= 3);
      mark(Feature::frozen_prefix, frozen_before && !trainable_before && !p.frozen);
      frozen_before = frozen_before || p.frozen;
      trainable_before = trainable_before || !p.frozen;
    }
    mark(Feature::frozen_parameters, frozen_before);
    mark(Feature::nothing_trains, !trainable_before);
    mark(Feature::frozen_input, !c_.protocol.input_requires_grad);
    mark(Feature::trainable_input, c_.protocol.input_requires_grad);
    mark(Feature::several_inputs, g_.inputs > 1);
    int with_grad = 0;
    for (int i = 0; i < g_.inputs; ++i) with_grad += requires_grad(c_.protocol, i) ? 1 : 0;
    mark(Feature::some_inputs_frozen, with_grad > 0 && with_grad < g_.inputs);
    mark(Feature::without_gradient, with_grad == 0 && !trainable_before);
  }

  /// The number of the plan's part (segment or plain run) in which each layer lies.
  std::vector<int> parts() const {
    std::vector<int> part(c_.layers.size());
    int number = -1;
    int cursor = 0;
    const auto fill = [&](int end) {
      if (cursor < end) ++number;
      for (; cursor < end; ++cursor) part[static_cast<std::size_t>(cursor)] = number;
    };
    for (const SegmentSpec& s : segments_) {
      fill(s.begin);
      fill(s.end);
    }
    fill(layers());
    return part;
  }

  void scan_skips() {
    const bool skips = std::any_of(c_.layers.begin(), c_.layers.end(),
                                   [](const LayerSpec& l) { return !l.from.empty(); });
    if (!skips) return;
    const std::vector<int> part = parts();
    for (std::size_t i = 0; i < c_.layers.size(); ++i) {
      for (const ValueRef v : c_.layers[i].from) {
        const int made = v.layer < 0 ? -1 : part[static_cast<std::size_t>(v.layer)];
        mark(Feature::long_skip, part[i] - made >= 3);
      }
    }
  }

  void scan_choice(const CheckpointChoice& choice) {
    const bool reentrant = choice.variant == Variant::reentrant;
    mark(reentrant ? Feature::reentrant : Feature::non_reentrant, true);
    mark(Feature::early_stop, !reentrant && choice.early_stop);
    mark(Feature::early_stop_off, !choice.early_stop);
    mark(Feature::preserve_rng_off, !choice.preserve_rng);
    mark(Feature::no_check, choice.determinism == CheckKind::none);
    mark(Feature::metadata_check, !reentrant && choice.determinism == CheckKind::metadata);
    mark(Feature::values_check, choice.determinism == CheckKind::values);
  }

  void scan_segment(const SegmentSpec& s, int depth) {
    const CheckpointChoice& choice = s.choice;
    const bool drawn = draws(s.begin, s.end);
    scan_choice(choice);
    mark(Feature::fresh_draws, !choice.preserve_rng && drawn);
    mark(Feature::draws_in_checkpointed_segment, drawn);
    if (!choice.keep.empty()) scan_policy(s);
    const bool own = choice.variant == Variant::non_reentrant && s.nested.empty();
    mark(Feature::selective, own && policy_may_keep(c_.options));
    mark(Feature::nested_2, depth >= 2);
    mark(Feature::nested_3, depth >= 3);
    mark(Feature::nested_4, depth >= 4);
    depth_ = std::max(depth_, depth);
    mark(Feature::multi_output_segment, live(s.end).size() > 1);
    mark(Feature::nested_inputs, choice.arguments == Arguments::dictionary);
    mark(Feature::keyword_inputs, choice.arguments == Arguments::keywords);
    mark(Feature::emptied_inputs, choice.arguments == Arguments::emptied);
    mark(Feature::nested_outputs, choice.nested_outputs);
    for (const int boundary : {s.begin, s.end}) {
      mark(Feature::same_tensor_twice, boundary > 0 && layer_of(layer(boundary - 1)).identity);
    }
    mark(Feature::in_place_at_segment_end, layer(s.end - 1).in_place);
    for (const ParameterInfo& buffer : g_.buffers) {
      const bool within = s.begin <= buffer.layer && buffer.layer < s.end;
      mark(Feature::stateful_layer, within && trains_in(layer(buffer.layer), c_.protocol.train));
    }
    for (const SegmentSpec& inner : s.nested) scan_segment(inner, depth + 1);
  }

  void scan_policy(const SegmentSpec& s) {
    bool kept_draw = false;
    for (int i = s.begin; i < s.end; ++i) {
      const bool kept = kept_by_policy(c_, s, i);
      mark(Feature::selective, kept);
      mark(Feature::kept_draw_before_draw, kept_draw && draws_at(i) && !kept);
      kept_draw = kept_draw || (kept && draws_at(i));
    }
  }

  bool has_large_tensor() const {
    return std::any_of(g_.outputs.begin(), g_.outputs.end(),
                       [](const auto& shapes) { return shapes[0].elements() > kFewElements; });
  }

  bool is_large() const {
    const ProtocolSpec& p = c_.protocol;
    const auto any = [](const auto& list, auto test) {
      return std::any_of(list.begin(), list.end(), test);
    };
    return c_.layers.size() > kFewLayers || depth_ > kFewLevels || p.steps > kFewForwards ||
           p.microbatches > kFewForwards || p.backwards > kFewBackwards ||
           any(c_.layers, [](const LayerSpec& l) { return l.stream > kFewStreams; }) ||
           any(g_.live, [](const auto& values) { return values.size() > kFewValues; }) ||
           any(g_.parameters, [](const ParameterInfo& q) { return q.uses > kFewUses; }) ||
           has_large_tensor();
  }

  void scan_plan() {
    mark(Feature::explicit_segments, !c_.plan.segments.empty());
    if (!c_.plan.sequential) return;
    const SequentialSpec& s = *c_.plan.sequential;
    mark(Feature::sequential, true);
    // Even where it leaves nothing to checkpoint.
    scan_choice(s.choice);
    mark(s.last_stored ? Feature::last_stored : Feature::last_checkpointed, true);
    mark(Feature::segments_1, s.segments == 1);
  }

  bool failure_in_segment() const {
    const InjectedFailure& m = c_.protocol.failure;
    if (m.kind != FailureKind::input_changed && !has_layer(m.kind)) return false;
    return std::any_of(segments_.begin(), segments_.end(),
                       [&](const SegmentSpec& s) { return s.begin <= m.layer && m.layer < s.end; });
  }

  void scan_protocol() {
    const ProtocolSpec& p = c_.protocol;
    mark(Feature::forwards_first, p.forwards_first && p.microbatches > 1);
    mark(Feature::gradients_kept, !p.zero_grad && p.steps > 1);
    mark(Feature::several_losses, p.auxiliary_losses && live(layers()).size() > 1);
    mark(Feature::failure_in_segment, failure_in_segment());
    mark(Feature::operand_changed, p.failure.kind >= FailureKind::shape_changed);
    const bool casts = std::any_of(c_.layers.begin(), c_.layers.end(), [](const LayerSpec& l) {
      return layer_of(l).has_products || layer_of(l).low_precision;
    });
    const bool autocast = p.autocast != AutocastSpan::off && casts;
    mark(Feature::autocast, autocast);
    mark(Feature::autocast_backward, autocast && p.autocast == AutocastSpan::both);
    mark(Feature::cast_cache_off, autocast && !p.cast_cache);
    mark(Feature::cast_weight_shared, autocast && casts_weight_twice());
    mark(p.optimizer == OptimizerKind::adam ? Feature::adam : Feature::sgd, true);
    mark(p.loss == LossKind::mse ? Feature::mse : Feature::cross_entropy, true);
    mark(c_.dtype == DType::float64 ? Feature::float64 : Feature::float32, true);
  }

  const Case& c_;
  const Geometry& g_;
  std::vector<SegmentSpec> segments_;
  int depth_ = 0;
  FeatureSet found_;
};

/// Moves requires_grad through a model, to where a reentrant segment that sees none of it cuts it
/// off.
class GradFlow {
 public:
  GradFlow(const Case& c, const Geometry& g) : c_(c), g_(g), flags_(c.layers.size() + 1) {
    for (int i = 0; i < g.inputs; ++i) flags_[0].push_back(requires_grad(c.protocol, i));
    for (std::size_t i = 0; i < c.layers.size(); ++i) flags_[i + 1].resize(g.outputs[i].size());
  }

  std::vector<int> frozen() {
    follow(0, static_cast<int>(c_.layers.size()), segments_of(c_));
    return std::move(frozen_);
  }

 private:
  std::vector<bool>::reference at(ValueRef v) {
    const int row = v.layer + 1;
    return flags_[static_cast<std::size_t>(row)][static_cast<std::size_t>(v.output)];
  }
  const LayerSpec& layer(int i) const { return c_.layers[static_cast<std::size_t>(i)]; }
  bool trains(int i) const { return has_parameters(layer(i)) && !layer(i).frozen; }

  void follow(int begin, int end, std::span<const SegmentSpec> segments) {
    auto next = segments.begin();
    for (int i = begin; i < end;) {
      if (next == segments.end() || i < next->begin) {
        bool flag = at({i - 1, 0}) || trains(i);
        for (const ValueRef v : layer(i).from) flag = flag || at(v);
        std::vector<bool>& made = flags_[static_cast<std::size_t>(i) + 1];
        made.assign(made.size(), flag);
        ++i;
        continue;
      }
      const SegmentSpec& s = *next++;
      i = s.end;
      if (s.choice.variant == Variant::non_reentrant) {
        follow(s.begin, s.end, s.nested);
        continue;
      }
      bool any = false;
      for (const ValueRef v : g_.live[static_cast<std::size_t>(s.begin)]) any = any || at(v);
      for (const ValueRef v : g_.live[static_cast<std::size_t>(s.end)]) at(v) = any;
      for (int k = s.begin; k < s.end; ++k) {
        if (!any && trains(k)) frozen_.push_back(k);
      }
    }
  }

  const Case& c_;
  const Geometry& g_;
  /// Flags of the outputs of each layer, the model inputs first.
  std::vector<std::vector<bool>> flags_;
  std::vector<int> frozen_;
};

}  // namespace

bool works_in_blocks(const Case& c, const Geometry& geometry, int layer) {
  const LayerSpec& l = c.layers[static_cast<std::size_t>(layer)];
  if (l.layer != nullptr) return false;
  const auto in_blocks = layer_of(l).in_blocks;
  if (in_blocks != nullptr && with_writer(c, geometry, layer, in_blocks)) return true;
  return draws_in(l, c.protocol.train) && drawn(c, geometry, layer) > FirstBlock::kDraws;
}

std::vector<int> frozen_layers(const Case& c, const Geometry& geometry) {
  // Every layer reads the one before it, so a gradient that the input wants passes all of them.
  if (c.protocol.input_requires_grad) return {};
  return GradFlow(c, geometry).frozen();
}

FeatureSet features_of(const Case& c, const Geometry& geometry) {
  return FeatureScan(c, geometry).run();
}

}  // namespace rematch
