#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "properties/case/geometry.h"
#include "properties/case/rules.h"
#include "properties/generate/parts.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

class WidePlan {
 public:
  WidePlan(DrawSource& draw, Case& c)
      : draw_(draw), c_(c), layers_(static_cast<int>(c.layers.size())) {}

  void run() {
    variants_ = draw_.weighted(
        std::array{35, 35, 30},
        std::array{Feature::reentrant, Feature::non_reentrant, Feature::mixed_variants});
    fresh_draws_ = draw_.chance(4, Feature::fresh_draws);
    c_.plan.offload = draw_.chance(12, Feature::offload);
    std::size_t form = draw_.weighted(std::array{30, 69, 1});
    if (form == 0 && !draw_.may(Feature::sequential)) form = 1;
    if (form == 1 && !draw_.may(Feature::explicit_segments)) form = 0;
    if (form == 0) {
      SequentialSpec& s = c_.plan.sequential.emplace();
      s.segments = draw_.range(1, layers_);
      s.last_stored = draw_.first(60, Feature::last_stored, Feature::last_checkpointed);
      s.choice = draw_choice(0, layers_);
    } else if (form == 1) {
      c_.plan.segments = draw_segments(0, layers_, draw_depth());
    }
  }

 private:
  int draw_depth() {
    constexpr std::array kDeeper{Feature::nested_2, Feature::nested_3, Feature::nested_4};
    std::size_t depth = draw_.weighted(std::array{55, 22, 13, 10});
    while (depth > 0 && !draw_.may(kDeeper[depth - 1])) --depth;
    return 1 + static_cast<int>(depth);
  }

  int draw_count(int begin, int end) const {
    return static_cast<int>(
        std::count_if(c_.layers.begin() + begin, c_.layers.begin() + end,
                      [&](const LayerSpec& l) { return draws_in(l, c_.protocol.train); }));
  }
  bool draws(int begin, int end) const { return draw_count(begin, end) > 0; }

  CheckpointChoice draw_choice(int begin, int end) {
    CheckpointChoice choice;
    const bool reentrant = variants_ == 0 || (variants_ == 2 && draw_.chance(50));
    if (reentrant) {
      choice.variant = Variant::reentrant;
    } else {
      choice.early_stop = draw_.first(80, Feature::early_stop, Feature::early_stop_off);
      const std::size_t check = draw_.weighted(
          std::array{80, 10, 10},
          std::array{Feature::metadata_check, Feature::no_check, Feature::values_check});
      if (check == 1) choice.determinism = CheckKind::none;
      // Fresh draws change values, also those of segments nested in a recomputation: no such check.
      if (check == 2 && !fresh_draws_) choice.determinism = CheckKind::values;
    }
    if (!reentrant && c_.protocol.backwards == 1 && draw_.may(Feature::selective)) {
      // Where one kept draw can go before another lies the best known trap.
      const bool trap = draw_count(begin, end) >= 2;
      if (draw_.chance(trap ? 90 : 15)) draw_keep(begin, end, trap && draw_.chance(85), choice);
    }
    const double off = !draws(begin, end) ? 25 : fresh_draws_ ? 70 : 0;
    choice.preserve_rng = !draw_.chance(off, Feature::preserve_rng_off);
    return choice;
  }

  /// A policy that keeps the first op of [begin, end) that draws, or each with even odds, or all of
  /// one kind.
  void draw_keep(int begin, int end, bool first_draw, CheckpointChoice& choice) {
    if (first_draw) {
      int layer = begin;
      // No policy can name what a custom layer draws.
      while (layer < end && (!draws(layer, layer + 1) || ops(layer).empty())) ++layer;
      if (layer < end) choice.keep.push_back({ops(layer).front(), 0});
      return;
    }
    if (draw_.chance(30)) {
      const int layer = draw_.range(begin, end - 1);
      for (const std::string_view op : ops(layer)) choice.keep.push_back({op, -1});
      return;
    }
    std::vector<std::string_view> before;
    for (int i = begin; i < end; ++i) {
      for (const std::string_view op : ops(i)) {
        const auto index = std::count(before.begin(), before.end(), op);
        if (draw_.chance(50)) choice.keep.push_back({op, static_cast<int>(index)});
        before.push_back(op);
      }
    }
  }
  std::span<const std::string_view> ops(int layer) const {
    return ops_of(c_.layers[static_cast<std::size_t>(layer)], c_.protocol.train);
  }

  /// Segments within [begin, end), at least one, the first of them `depth` levels deep.
  std::vector<SegmentSpec> draw_segments(int begin, int end, int depth) {
    std::vector<SegmentSpec> segments;
    int cursor = begin;
    int levels = depth;
    while (cursor < end) {
      if (draw_.chance(20)) cursor = std::min(cursor + draw_.range(1, 2), end - 1);
      const int left = end - cursor;
      // A deep segment is long, where it can be, so that its levels differ.
      const int longest = levels > 1 ? left : std::min(left, 1 + (end - begin) / 2);
      const int shortest = std::min(longest, levels);
      SegmentSpec& s = segments.emplace_back();
      s.begin = cursor;
      s.end = cursor + draw_.range(shortest, longest);
      s.choice = draw_choice(s.begin, s.end);
      if (levels > 1) s.choice.keep.clear();
      if (levels > 1) s.nested = draw_segments(s.begin, s.end, levels - 1);
      cursor = s.end;
      levels = draw_.chance(30) ? depth : 1;
      if (draw_.chance(10)) break;
    }
    return segments;
  }

  DrawSource& draw_;
  Case& c_;
  int layers_;
  std::size_t variants_ = 0;
  bool fresh_draws_ = false;
};

}  // namespace

void draw_wide_plan(DrawSource& draw, Case& c) { WidePlan(draw, c).run(); }

void draw_wide_protocol(DrawSource& draw, Case& c) {
  ProtocolSpec& p = c.protocol;
  p.steps = 1 + static_cast<int>(draw.weighted(std::array{60, 30, 10}));
  if (!draw.may(Feature::several_steps)) p.steps = 1;
  p.microbatches = 1 + static_cast<int>(draw.weighted(std::array{65, 23, 12}));
  if (!draw.may(Feature::accumulation)) p.microbatches = 1;
  p.forwards_first = p.microbatches > 1 && draw.chance(50, Feature::forwards_first);
  p.backwards = draw.chance(14, Feature::retain_graph) ? 2 : 1;
  p.prior_gradients = draw.chance(15, Feature::prior_gradients);
  p.zero_grad = draw.chance(75) || !draw.may(Feature::gradients_kept);
  p.train = draw.chance(88) || !draw.may(Feature::eval_mode);
  p.input_requires_grad = draw.first(60, Feature::trainable_input, Feature::frozen_input);
  p.loss = draw.first(75, Feature::mse, Feature::cross_entropy) ? LossKind::mse
                                                                : LossKind::cross_entropy;
  p.optimizer =
      draw.first(70, Feature::sgd, Feature::adam) ? OptimizerKind::sgd : OptimizerKind::adam;
  p.learning_rate = draw.pick(std::array{0.05, 0.05, 0.1, 0.01});
  if (p.optimizer == OptimizerKind::sgd && draw.chance(35, Feature::momentum)) p.momentum = 0.9;
  p.reevaluate = draw.chance(20, Feature::reevaluate);
  if (draw.first(30, Feature::float64, Feature::float32)) c.dtype = DType::float64;
  if (c.dtype == DType::float32 && draw.chance(22, Feature::autocast)) {
    const bool both = !draw.chance(60) && draw.may(Feature::autocast_backward);
    p.autocast = both ? AutocastSpan::both : AutocastSpan::forward;
    p.cast_cache = draw.chance(70) || !draw.may(Feature::cast_cache_off);
  }
  if (draw.chance(15, Feature::small_integers)) c.data = DataKind::small_integers;
  if (draw.chance(9, Feature::clipping)) p.clip = draw.pick(std::array{0.01, 0.5, 100.0});
  // By the larger one gradients of 4 and more overflow.
  if (draw.chance(14, Feature::loss_scaling) && takes_loss_scale(c)) {
    p.loss_scale = draw.pick(std::array{0x1p10, 0x1p126, 0x1p126});
  }
}

void draw_partial(DrawSource& draw, Case& c) {
  c.protocol.partial = draw.chance(16, Feature::partial_backwards) && takes_partial(c.plan);
}

void draw_losses(DrawSource& draw, Case& c) {
  const bool wanted = draw.chance(40, Feature::several_losses);
  if (!wanted || !takes_auxiliary_losses(c)) return;
  c.protocol.auxiliary_losses = validate(c).live.back().size() > 1;
}

namespace {

Arguments draw_arguments(DrawSource& draw, Variant variant) {
  // A list that is emptied ends the case: seldom, so that the other forms are seen as well.
  switch (draw.weighted(std::array{40, 28, 28, 4})) {
    case 1:
      if (draw.may(Feature::nested_inputs)) return Arguments::dictionary;
      break;
    case 2:
      if (variant == Variant::reentrant || !draw.may(Feature::keyword_inputs)) break;
      return Arguments::keywords;
    case 3:
      if (draw.may(Feature::emptied_inputs)) return Arguments::emptied;
      break;
    default:
      break;
  }
  return Arguments::tensors;
}

void draw_structures_of(DrawSource& draw, std::vector<SegmentSpec>& segments) {
  for (SegmentSpec& s : segments) {
    s.choice.arguments = draw_arguments(draw, s.choice.variant);
    s.choice.nested_outputs = draw.chance(25, Feature::nested_outputs);
    draw_structures_of(draw, s.nested);
  }
}

}  // namespace

void draw_structures(DrawSource& draw, Case& c) {
  if (draw.chance(25)) draw_structures_of(draw, c.plan.segments);
}

void draw_in_place(DrawSource& draw, Case& c) {
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    LayerSpec& layer = c.layers[i];
    if (!layer_of(layer).takes("in_place") || !draw.chance(65, Feature::in_place)) continue;
    layer.in_place = in_place_hazard(c, static_cast<int>(i)) == nullptr;
  }
}

void draw_failure(DrawSource& draw, Case& c, FailureKind kind) {
  InjectedFailure m{.kind = kind};
  const bool given = kind != FailureKind::none;
  if (!preserves_rng_everywhere(c)) return;
  if (!given && !draw.chance(28, Feature::injected_failure)) return;
  if (!given)
    m.kind = draw.pick(std::array{FailureKind::input_changed, FailureKind::weight_changed,
                                  FailureKind::weight_changed, FailureKind::op_exchanged,
                                  FailureKind::forward_throws, FailureKind::recomputation_throws,
                                  FailureKind::graph_dropped});
  if (m.kind == FailureKind::input_changed && vocabulary_of(c.layers) > 0) return;
  const int layers = static_cast<int>(c.layers.size());
  if (has_layer(m.kind)) {
    // The first that it can happen to, from a layer on that is drawn.
    m.layer = draw.range(0, layers - 1);
    for (int tried = 0; !can_happen(m.kind, c.layers[static_cast<std::size_t>(m.layer)]); ++tried) {
      if (tried == layers) return;
      m.layer = (m.layer + 1) % layers;
    }
  }
  c.protocol.failure = m;
}

}  // namespace rematch
