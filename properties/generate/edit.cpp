#include "properties/generate/edit.h"

#include <algorithm>
#include <array>
#include <utility>

#include "properties/case/geometry.h"
#include "properties/case/rules.h"

namespace rematch {
namespace {

using Extents = std::vector<std::int64_t>;

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

/// Follows the shapes through the layers as validate() does, and mends instead of complaining.
class Mender {
 public:
  explicit Mender(Case& c) : c_(c), x_(c.input) {}

  void run() {
    outputs_.reserve(c_.layers.size());
    entering_.reserve(c_.layers.size());
    for (index_ = 0; index_ < static_cast<int>(c_.layers.size()); ++index_) {
      LayerSpec& l = c_.layers[static_cast<std::size_t>(index_)];
      entering_.push_back(x_);
      if (l.from) mend_operand(l);
      Extents second;
      if (!advance(l, second) || !in_limits()) return;
      if (l.kind == LayerKind::duplicate) second = x_;
      outputs_.push_back({x_, std::move(second)});
    }
    for (int i = 0; i < static_cast<int>(c_.layers.size()); ++i) {
      LayerSpec& l = c_.layers[static_cast<std::size_t>(i)];
      if (l.in_place && in_place_hazard(c_, i) != nullptr) l.in_place = false;
    }
    MishapSpec& mishap = c_.protocol.mishap;
    if (!has_layer(mishap.kind)) return;
    const auto layer = static_cast<std::size_t>(mishap.layer);
    if (layer >= c_.layers.size() || !can_happen(mishap.kind, c_.layers[layer])) mishap = {};
  }

 private:
  /// Mended skips can grow what follows them; beyond the limit the numbers would overflow.
  bool in_limits() const {
    std::int64_t elements = 1;
    for (const std::int64_t d : x_) {
      elements *= d;
      if (elements > kMaxCaseElements) return false;
    }
    return true;
  }

  const Extents* find(ValueRef v) const {
    if (v.layer >= index_ || v.layer < -1 || v.output < 0 || v.output > 1) return nullptr;
    if (v.layer == -1) return v.output == 0 ? &c_.input : nullptr;
    const Extents& found =
        outputs_[static_cast<std::size_t>(v.layer)][static_cast<std::size_t>(v.output)];
    return found.empty() ? nullptr : &found;
  }

  void mend_operand(LayerSpec& l) const {
    const Extents* other = find(*l.from);
    bool fits = other != nullptr && other->size() == x_.size();
    for (std::size_t i = 0; fits && i < x_.size(); ++i) {
      fits = (i == 1 && l.kind == LayerKind::concat) || (*other)[i] == x_[i];
    }
    if (!fits) l.from = ValueRef{index_ - 1, 0};
  }

  void mend_tie(LayerSpec& l) const {
    if (l.tied_to == -1) return;
    const LayerSpec& owner = c_.layers[static_cast<std::size_t>(l.tied_to)];
    const bool fits = owner.kind == l.kind && owner.tied_to == -1 && owner.bias == l.bias &&
                      owner.kernel == l.kernel && owner.features == l.features &&
                      owner.frozen == l.frozen &&
                      entering_[static_cast<std::size_t>(l.tied_to)][1] == x_[1];
    if (!fits) l.tied_to = -1;
  }

  /// false: the layer cannot be mended.
  bool advance(LayerSpec& l, Extents& second) {
    switch (l.kind) {
      case LayerKind::linear:
        if (x_.size() != 2) return false;
        mend_tie(l);
        x_[1] = l.features;
        return true;
      case LayerKind::conv2d:
      case LayerKind::max_pool2d:
      case LayerKind::avg_pool2d:
        return slide(l);
      case LayerKind::flatten:
        if (x_.size() == 4) x_ = {x_[0], x_[1] * x_[2] * x_[3]};
        return true;
      case LayerKind::concat:
        x_[1] += (*find(*l.from))[1];
        return true;
      case LayerKind::split:
        if (x_[1] < 2) return false;
        l.features = std::min(l.features, x_[1] - 1);
        second = x_;
        second[1] -= l.features;
        x_[1] = l.features;
        return true;
      default:
        return true;
    }
  }

  bool slide(LayerSpec& l) {
    if (x_.size() != 4) return false;
    l.kernel = std::min(l.kernel, std::min(x_[2], x_[3]) + 2 * l.padding);
    if (l.kind != LayerKind::conv2d) l.padding = std::min(l.padding, l.kernel / 2);
    mend_tie(l);
    for (const std::size_t i : {std::size_t{2}, std::size_t{3}}) {
      const std::int64_t padded = x_[i] + 2 * l.padding;
      if (l.kernel > padded) return false;
      x_[i] = (padded - l.kernel) / l.stride + 1;
    }
    if (l.kind == LayerKind::conv2d) x_[1] = l.features;
    return true;
  }

  Case& c_;
  int index_ = 0;
  Extents x_;
  /// What enters each layer, and its outputs; an output that does not exist is empty.
  std::vector<Extents> entering_;
  std::vector<std::array<Extents, 2>> outputs_;
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
  smaller.layers.erase(smaller.layers.begin() + begin, smaller.layers.begin() + end);
  for (LayerSpec& l : smaller.layers) {
    if (!l.from) continue;
    l.from = removal.removes(l.from->layer)
                 ? ValueRef{begin - 1, 0}
                 : ValueRef{removal.layer(l.from->layer), l.from->output};
  }
  MishapSpec& mishap = smaller.protocol.mishap;
  if (has_layer(mishap.kind)) {
    if (removal.removes(mishap.layer)) {
      mishap = {};
    } else {
      mishap.layer = removal.layer(mishap.layer);
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
