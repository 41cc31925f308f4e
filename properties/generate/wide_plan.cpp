#include <algorithm>
#include <array>
#include <vector>

#include "properties/case/policy.h"
#include "properties/case/rules.h"
#include "properties/generate/parts.h"

namespace rematch {
namespace {

class WidePlan {
 public:
  WidePlan(DrawSource& draw, Case& c)
      : draw_(draw), c_(c), layers_(static_cast<int>(c.layers.size())) {}

  void run() {
    variants_ = draw_.weighted(std::array{35, 35, 30});
    fresh_draws_ = draw_.chance(4);
    c_.plan.offload = draw_.chance(12);
    const std::size_t form = draw_.weighted(std::array{30, 69, 1});
    if (form == 0) {
      SequentialSpec& s = c_.plan.sequential.emplace();
      s.segments = draw_.range(1, layers_);
      s.last_stored = draw_.chance(60);
      s.choice = draw_choice(0, layers_);
    } else if (form == 1) {
      c_.plan.segments = draw_segments(0, layers_, 1 + static_cast<int>(draw_.weighted(kDepths)));
    }
  }

 private:
  static constexpr std::array<int, 4> kDepths{55, 22, 13, 10};

  bool draws(int begin, int end) const {
    return c_.protocol.train &&
           std::any_of(c_.layers.begin() + begin, c_.layers.begin() + end, draws_in_training);
  }

  CheckpointChoice draw_choice(int begin, int end) {
    CheckpointChoice choice;
    const bool reentrant = variants_ == 0 || (variants_ == 2 && draw_.chance(50));
    if (reentrant) {
      choice.variant = Variant::reentrant;
    } else {
      choice.early_stop = draw_.chance(80);
      const std::size_t check = draw_.weighted(std::array{80, 10, 10});
      if (check == 1) choice.determinism = CheckKind::none;
      // Fresh draws change values, also those of segments nested in a replay: no such check.
      if (check == 2 && !fresh_draws_) choice.determinism = CheckKind::values;
    }
    if (!reentrant && c_.protocol.backwards == 1) {
      // Where one kept draw can go before another lies the best known trap.
      const bool trap = draw_count(begin, end) >= 2;
      if (draw_.chance(trap ? 90 : 15)) draw_keep(begin, end, trap && draw_.chance(85), choice);
    }
    const double off = !draws(begin, end) ? 25 : fresh_draws_ ? 70 : 0;
    choice.preserve_rng = !draw_.chance(off);
    return choice;
  }

  int draw_count(int begin, int end) const {
    if (!c_.protocol.train) return 0;
    return static_cast<int>(
        std::count_if(c_.layers.begin() + begin, c_.layers.begin() + end, draws_in_training));
  }

  /// A policy that keeps the first op of [begin, end) that draws, or each with even odds, or all of
  /// one kind.
  void draw_keep(int begin, int end, bool first_draw, CheckpointChoice& choice) {
    if (first_draw) {
      int layer = begin;
      while (!draws(layer, layer + 1)) ++layer;
      choice.keep.push_back({kind_of(layer), 0});
      return;
    }
    if (draw_.chance(30)) {
      const int layer = draw_.range(begin, end - 1);
      if (!op_of(c_, layer).empty()) choice.keep.push_back({kind_of(layer), -1});
      return;
    }
    std::array<int, 32> counts{};
    for (int i = begin; i < end; ++i) {
      if (op_of(c_, i).empty()) continue;
      const int index = counts[static_cast<std::size_t>(kind_of(i))]++;
      if (draw_.chance(50)) choice.keep.push_back({kind_of(i), index});
    }
  }
  LayerKind kind_of(int layer) const { return c_.layers[static_cast<std::size_t>(layer)].kind; }

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
  p.microbatches = 1 + static_cast<int>(draw.weighted(std::array{65, 23, 12}));
  p.forwards_first = p.microbatches > 1 && draw.chance(50);
  p.backwards = draw.chance(14) ? 2 : 1;
  p.prior_gradients = draw.chance(15);
  p.zero_grad = draw.chance(75);
  p.train = draw.chance(88);
  p.input_requires_grad = draw.chance(60);
  p.loss = draw.chance(75) ? LossKind::mse : LossKind::cross_entropy;
  p.optimizer = draw.chance(70) ? OptimizerKind::sgd : OptimizerKind::adam;
  p.learning_rate = draw.pick(std::array{0.05, 0.05, 0.1, 0.01});
  if (p.optimizer == OptimizerKind::sgd && draw.chance(35)) p.momentum = 0.9;
  p.reevaluate = draw.chance(20);
  if (draw.chance(30)) c.dtype = DType::float64;
  if (c.dtype == DType::float32 && draw.chance(22)) {
    p.autocast = draw.chance(60) ? AutocastSpan::forward : AutocastSpan::both;
    p.cast_cache = draw.chance(70);
  }
  if (draw.chance(15)) c.data = DataKind::small_integers;
}

void draw_in_place(DrawSource& draw, Case& c) {
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    LayerSpec& layer = c.layers[i];
    if (layer.kind != LayerKind::relu || !draw.chance(65)) continue;
    layer.in_place = in_place_hazard(c, static_cast<int>(i)) == nullptr;
  }
}

void draw_mishap(DrawSource& draw, Case& c) {
  if (!preserves_rng_everywhere(c) || !draw.chance(28)) return;
  MishapSpec m;
  m.kind = draw.pick(std::array{MishapKind::input_changed, MishapKind::weight_changed,
                                MishapKind::weight_changed, MishapKind::op_exchanged,
                                MishapKind::forward_throws, MishapKind::replay_throws,
                                MishapKind::graph_dropped});
  const int layers = static_cast<int>(c.layers.size());
  if (has_layer(m.kind)) {
    // The first that it can happen to, from a layer on that is drawn.
    m.layer = draw.range(0, layers - 1);
    for (int tried = 0; !can_happen(m.kind, c.layers[static_cast<std::size_t>(m.layer)]); ++tried) {
      if (tried == layers) return;
      m.layer = (m.layer + 1) % layers;
    }
  }
  c.protocol.mishap = m;
}

}  // namespace rematch
