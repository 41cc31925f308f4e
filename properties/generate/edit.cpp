#include "properties/generate/edit.h"

#include <algorithm>
#include <stdexcept>

#include "properties/case/geometry.h"
#include "properties/case/rules.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

/// Maps layer and boundary numbers of a model to those of the model without [begin, end).
struct Removal {
  int begin;
  int end;
  bool removes(int layer) const { return layer >= begin && layer < end; }
  int layer(int old) const { return old < end ? old : old - (end - begin); }
  int boundary(int old) const { return old >= end ? old - (end - begin) : std::min(old, begin); }
};

void renumber(std::vector<SegmentSpec>& segments, const Removal& removal) {
  for (SegmentSpec& s : segments) {
    s.begin = removal.boundary(s.begin);
    s.end = removal.boundary(s.end);
    renumber(s.nested, removal);
  }
  std::erase_if(segments, [](const SegmentSpec& s) { return s.begin >= s.end; });
}

void renumber_ties(const Case& before, const Removal& removal, Case& after) {
  std::vector<int> heirs(before.layers.size(), -1);
  for (std::size_t i = 0; i < after.layers.size(); ++i) {
    LayerSpec& l = after.layers[i];
    if (l.tied_to == -1) continue;
    if (!removal.removes(l.tied_to)) {
      l.tied_to = removal.layer(l.tied_to);
      continue;
    }
    int& heir = heirs[static_cast<std::size_t>(l.tied_to)];
    l.tied_to = heir;
    if (heir == -1) heir = static_cast<int>(i);
  }
}

/// Follows the shapes through the layers as validate() does, and mends what does not fit.
class Mender {
 public:
  explicit Mender(Case& c) : c_(c) {}

  void run() {
    try {
      ShapeWalk walk(c_.input, c_.further_inputs, c_.layers, c_.protocol.train, geometry_);
      for (index_ = 0; index_ < static_cast<int>(c_.layers.size()); ++index_) {
        repair(c_.layers[static_cast<std::size_t>(index_)], walk);
        walk.step();
      }
    } catch (const std::invalid_argument&) {
      return;  // It cannot be repaired.
    }
    drop_unread_inputs(c_);
    for (int i = 0; i < static_cast<int>(c_.layers.size()); ++i) {
      LayerSpec& l = c_.layers[static_cast<std::size_t>(i)];
      if (l.in_place && in_place_hazard(c_, i) != nullptr) l.in_place = false;
    }
    InjectedFailure& failure = c_.protocol.failure;
    if (!has_layer(failure.kind)) return;
    const auto layer = static_cast<std::size_t>(failure.layer);
    if (layer >= c_.layers.size() || !can_happen(failure.kind, c_.layers[layer])) failure = {};
  }

 private:
  void repair(LayerSpec& l, const ShapeWalk& walk) const {
    const Layer& layer = layer_of(l);
    for (ValueRef& v : l.from) {
      // Outputs of the layer at hand are not there yet.
      const bool there = v.layer < index_ && walk.known(v);
      const bool readable = there && !(v.layer < 0 && walk.takes_tokens());
      if (!readable || !layer.fits(walk.x(), walk.shape_of(v))) v = {index_ - 1, 0};
    }
    layer.repair(l, walk.x(), l.from.empty() ? walk.x() : walk.shape_of(l.from.back()));
    if (l.tied_to == -1) return;
    const LayerSpec& owner = c_.layers[static_cast<std::size_t>(l.tied_to)];
    const bool lends = lends_weight(owner.kind, l.kind) && owner.tied_to == -1;
    if (!lends || has_bias(owner) != l.bias || owner.kernel != l.kernel ||
        owner.frozen != l.frozen ||
        !fits(geometry_.weight_of(l.tied_to), l.features, walk.width())) {
      l.tied_to = -1;
    }
  }

  static bool fits(const Shape& weight, std::int64_t features, std::int64_t width) {
    return weight[0] == features && weight[1] == width;
  }

  Case& c_;
  Geometry geometry_;
  int index_ = 0;
};

bool edit_numbered(std::vector<SegmentSpec>& segments, int& index,
                   const std::function<void(std::vector<SegmentSpec>&, std::size_t)>& edit) {
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (index-- == 0) {
      edit(segments, i);
      return true;
    }
    if (edit_numbered(segments[i].nested, index, edit)) return true;
  }
  return false;
}

}  // namespace

Case without_layers(const Case& c, int begin, int end) {
  const Removal removal{begin, end};
  Case smaller = c;
  // The model's input is then the numbers that its embedding made of tokens.
  if (begin == 0 && vocabulary_of(c.layers) > 0) smaller.input.push_back(c.layers[0].features);
  smaller.layers.erase(smaller.layers.begin() + begin, smaller.layers.begin() + end);
  for (LayerSpec& l : smaller.layers) {
    for (ValueRef& v : l.from) {
      v = removal.removes(v.layer) ? ValueRef{begin - 1, 0}
                                   : ValueRef{removal.layer(v.layer), v.output};
    }
  }
  InjectedFailure& failure = smaller.protocol.failure;
  if (has_layer(failure.kind)) {
    if (removal.removes(failure.layer)) {
      failure = {};
    } else {
      failure.layer = removal.layer(failure.layer);
    }
  }
  renumber_ties(c, removal, smaller);
  renumber(smaller.plan.segments, removal);
  if (smaller.plan.sequential) {
    int& segments = smaller.plan.sequential->segments;
    segments = std::min(segments, static_cast<int>(smaller.layers.size()));
  }
  return smaller;
}

void repair(Case& c) { Mender(c).run(); }

void drop_unread_inputs(Case& c) {
  int& with_grad = c.protocol.further_inputs_with_grad;
  with_grad = std::min(with_grad, c.further_inputs);
  for (int input = c.further_inputs; input > 0; --input) {
    if (reads(c.layers, {-1, input})) continue;
    for (LayerSpec& l : c.layers) {
      for (ValueRef& v : l.from) {
        if (v.layer < 0 && v.output > input) --v.output;
      }
    }
    --c.further_inputs;
    if (input <= with_grad) --with_grad;
  }
}

int count_segments(const std::vector<SegmentSpec>& segments) {
  int count = 0;
  for (const SegmentSpec& s : segments) count += 1 + count_segments(s.nested);
  return count;
}

void edit_segment(std::vector<SegmentSpec>& segments, int index,
                  const std::function<void(std::vector<SegmentSpec>&, std::size_t)>& edit) {
  edit_numbered(segments, index, edit);
}

}  // namespace rematch
