// Rare cases with more than a few of something: what a fixed bound, or a counter that is too small,
// would break. All else about them is small, so that they stay cheap.
#include <algorithm>
#include <array>
#include <span>

#include "properties/case/geometry.h"
#include "properties/generate/parts.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

class WideTail {
 public:
  WideTail(DrawSource& draw, Case& c) : draw_(draw), c_(c) {}

  void run(bool large) {
    c_.layers.clear();
    c_.plan = {};
    c_.data = DataKind::normal;
    c_.input = {draw_.may(Feature::one_row) ? 1 : 2, draw_.range(1, 2)};
    ProtocolSpec& p = c_.protocol;
    const bool trains = p.train;
    p = {};
    p.train = trains;
    p.input_requires_grad = true;
    if (!draw_.may(Feature::mse)) p.loss = LossKind::cross_entropy;
    if (!draw_.may(Feature::sgd)) p.optimizer = OptimizerKind::adam;
    if (large) return large_check();
    switch (draw_.weighted(std::array{22, 16, 14, 14, 10, 12, 10, 2})) {
      case 0:
        return many_segments();
      case 1:
        return deep_nesting();
      case 2:
        return many_streams();
      case 3:
        return many_values();
      case 4:
        return many_uses_of_a_weight();
      case 5:
        return many_forwards();
      case 6:
        return many_kept_results();
      default:
        return large_tensors();
    }
  }

 private:
  LayerSpec& append(LayerKind kind) {
    LayerSpec& layer = c_.layers.emplace_back();
    layer.kind = kind;
    if (layer_of(kind).takes("features")) layer.features = c_.input[1];
    layer.p = layer_of(kind).simple_p;
    return layer;
  }

  /// A kind that fulfils `wanted`, all with the same odds.
  template <class Wanted>
  LayerKind pick(Wanted wanted) {
    std::array<int, kLayerKinds> weights{};
    for (std::size_t i = 0; i < kLayerKinds; ++i) {
      weights[i] = wanted(layer_of(static_cast<LayerKind>(i))) ? 1 : 0;
    }
    return draw_.weighted_kind(weights);
  }

  /// `count` layers that keep the width.
  void append_some(int count) {
    for (int i = 0; i < count; ++i) {
      append(pick([](const Layer& l) { return l.chained_in_tail; }));
    }
  }

  CheckpointChoice choice() {
    CheckpointChoice choice;
    choice.variant = draw_.first(50, Feature::non_reentrant, Feature::reentrant)
                         ? Variant::non_reentrant
                         : Variant::reentrant;
    if (choice.variant == Variant::non_reentrant) {
      choice.early_stop = draw_.first(70, Feature::early_stop, Feature::early_stop_off);
      if (!draw_.may(Feature::metadata_check)) choice.determinism = CheckKind::none;
    }
    return choice;
  }

  int layers() const { return static_cast<int>(c_.layers.size()); }
  SegmentSpec segment(int begin, int end) { return {begin, end, choice(), {}}; }
  void cover_all() { c_.plan.segments = {segment(0, layers())}; }

  void many_segments() {
    append_some(draw_.range(41, 160));
    if (draw_.chance(60, Feature::sequential) || !draw_.may(Feature::explicit_segments)) {
      SequentialSpec& s = c_.plan.sequential.emplace();
      s.segments = draw_.range(21, layers());
      s.last_stored = draw_.first(60, Feature::last_stored, Feature::last_checkpointed);
      s.choice = choice();
      return;
    }
    for (int at = 0; at < layers();) {
      const int end = std::min(layers(), at + draw_.range(1, 3));
      c_.plan.segments.push_back(segment(at, end));
      at = end + draw_.range(0, 1);
    }
  }

  void deep_nesting() {
    append_some(draw_.range(2, 5));
    std::vector<SegmentSpec>* level = &c_.plan.segments;
    const int depth = draw_.range(5, 40);
    int begin = 0;
    for (int i = 0; i < depth; ++i) {
      level->push_back(segment(begin, layers()));
      level = &level->back().nested;
      if (begin + 1 < layers() && draw_.chance(10)) ++begin;
    }
  }

  void many_streams() {
    c_.protocol.train = true;
    const int draws = draw_.range(5, 40);
    for (int i = 0; i < draws; ++i) append(layer_kind("dropout")).stream = draw_.range(0, 60);
    cover_all();
  }

  /// A layer hands on, and a segment takes and returns, many values.
  void many_values() {
    const int count = draw_.range(20, 140);
    for (int i = 0; i < count; ++i) append(layer_kind("duplicate"));
    append(layer_kind("relu"));
    for (int i = draw_.range(0, 12); i > 0; --i) {
      append(layer_kind("add")).from = {{draw_.range(0, count - 1), draw_.range(0, 1)}};
    }
    c_.plan.segments = {segment(0, draw_.range(1, layers() - 1))};
    if (draw_.chance(50)) c_.plan.segments.push_back(segment(layers() - 1, layers()));
  }

  void many_uses_of_a_weight() {
    const int count = draw_.range(20, 150);
    const LayerKind linear = layer_kind("linear");
    append(linear);
    for (int i = 1; i < count; ++i) append(linear).tied_to = 0;
    cover_all();
  }

  void many_forwards() {
    append_some(draw_.range(1, 3));
    cover_all();
    ProtocolSpec& p = c_.protocol;
    constexpr std::array kOf{Feature::several_steps, Feature::accumulation, Feature::retain_graph};
    switch (draw_.weighted(std::array{1, 1, 1}, kOf)) {
      case 0:
        p.steps = draw_.range(4, 70);
        p.zero_grad = draw_.chance(50) || !draw_.may(Feature::gradients_kept);
        break;
      case 1:
        p.microbatches = draw_.range(4, 70);
        p.forwards_first = draw_.chance(50, Feature::forwards_first);
        break;
      default:
        p.backwards = draw_.range(3, 20);
        break;
    }
  }

  void many_kept_results() {
    append_some(draw_.range(41, 120));
    cover_all();
    CheckpointChoice& choice = c_.plan.segments[0].choice;
    if (choice.variant == Variant::reentrant || !draw_.may(Feature::selective)) return;
    for (const char* op : {"relu", "tanh", "linear"}) {
      if (draw_.chance(60)) choice.keep.push_back({op, -1});
    }
    if (draw_.chance(50)) choice.keep.push_back({"dropout", draw_.range(2, 12)});
  }

  /// Above 1 MiB, which is more than any cache line, chunk or default buffer.
  void large_tensors() {
    c_.input = {draw_.range(1, 3), draw_.range(270000, 300000)};
    c_.dtype = DType::float32;
    for (int i = 0; i < 2; ++i) {
      append(pick([](const Layer& l) { return l.chained_in_tail && !l.has_parameters; }));
    }
    cover_all();
  }

  void large_check() {
    // Just above 1 MiB, or 4: there, shrinking has few steps to go. Inputs and outputs are small,
    // as most of what a large tensor costs is to draw and to record it.
    c_.input = {513 * (draw_.chance(12) ? 4 : 1) + draw_.range(0, 3), 1};
    c_.dtype = DType::float32;
    append(layer_kind("linear")).features = 512;
    append(pick([](const Layer& l) { return l.exchangeable; }));
    append(layer_kind("linear"));
    cover_all();
    CheckpointChoice& choice = c_.plan.segments[0].choice;
    choice.variant = Variant::non_reentrant;
    choice.determinism = CheckKind::values;
    c_.protocol.failure = {FailureKind::value_changed, 1};
  }

  DrawSource& draw_;
  Case& c_;
};

}  // namespace

void draw_wide_tail(DrawSource& draw, Case& c) { WideTail(draw, c).run(false); }
void draw_large_check(DrawSource& draw, Case& c) { WideTail(draw, c).run(true); }

}  // namespace rematch
