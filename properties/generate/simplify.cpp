#include "properties/generate/simplify.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "properties/case/geometry.h"
#include "properties/generate/edit.h"

namespace rematch {
namespace {

/// Offers a copy of the case after `edit(copy)`.
template <class Edit>
bool offer_edited(const Case& c, const OfferCase& offer, Edit edit) {
  Case copy = c;
  edit(copy);
  return offer(std::move(copy));
}

/// Smaller values for a number that is at least `low`, the smallest first.
template <class Integer>
std::vector<Integer> smaller(Integer value, Integer low) {
  std::vector<Integer> values;
  for (const Integer v : {low, Integer(low + 1), Integer(value / 2), Integer(value - 1)}) {
    const bool seen = std::find(values.begin(), values.end(), v) != values.end();
    if (v >= low && v < value && !seen) values.push_back(v);
  }
  return values;
}

template <class Access>
bool reduce(const Case& c, const OfferCase& offer, Access access, std::int64_t low) {
  Case copy = c;
  const auto values = smaller(static_cast<std::int64_t>(access(copy)), low);
  return std::any_of(values.begin(), values.end(), [&](std::int64_t v) {
    return offer_edited(c, offer, [&](Case& edited) {
      auto& field = access(edited);
      field = static_cast<std::remove_reference_t<decltype(field)>>(v);
    });
  });
}

template <class Access, class Value>
bool set(const Case& c, const OfferCase& offer, Access access, const Value& value) {
  Case copy = c;
  if (access(copy) == value) return false;
  access(copy) = value;
  return offer(std::move(copy));
}

bool simplify_keep(const Case& c, const OfferCase& offer, auto access) {
  Case copy = c;
  const std::vector<KeepSpec> keep = access(copy).keep;
  if (keep.empty()) return false;
  if (offer_edited(c, offer, [&](Case& e) { access(e).keep.clear(); })) return true;
  for (std::size_t i = 0; i < keep.size(); ++i) {
    if (offer_edited(c, offer, [&](Case& e) { access(e).keep = {keep[i]}; }) ||
        offer_edited(c, offer, [&](Case& e) {
          auto& list = access(e).keep;
          list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
        })) {
      return true;
    }
    if (keep[i].index > 0 && offer_edited(c, offer, [&](Case& e) { --access(e).keep[i].index; })) {
      return true;
    }
    if (keep[i].index != -1 &&
        offer_edited(c, offer, [&](Case& e) { access(e).keep[i].index = -1; })) {
      return true;
    }
  }
  return false;
}

bool simplify_choice(const Case& c, const OfferCase& offer, auto access) {
  const CheckpointChoice usual;
  const auto field = [&](auto member) {
    return set(
        c, offer, [&](Case & e) -> auto& { return access(e).*member; }, usual.*member);
  };
  CheckpointChoice usual_reentrant;
  usual_reentrant.variant = Variant::reentrant;
  return offer_edited(c, offer, [&](Case& e) { access(e) = usual; }) ||
         offer_edited(c, offer, [&](Case& e) { access(e) = usual_reentrant; }) ||
         simplify_keep(c, offer, access) || field(&CheckpointChoice::preserve_rng) ||
         field(&CheckpointChoice::early_stop) || field(&CheckpointChoice::determinism) ||
         field(&CheckpointChoice::variant);
}

bool simplify_sequential(const Case& c, const OfferCase& offer) {
  const auto plan = [](Case& e) -> SequentialSpec& { return *e.plan.sequential; };
  return offer_edited(c, offer,
                      [&](Case& e) {
                        e.plan.segments = segments_of(c);
                        e.plan.sequential.reset();
                      }) ||
         reduce(
             c, offer, [&](Case& e) -> int& { return plan(e).segments; }, 1) ||
         set(
             c, offer, [&](Case& e) -> bool& { return plan(e).last_stored; }, true) ||
         simplify_choice(c, offer, [&](Case& e) -> CheckpointChoice& { return plan(e).choice; });
}

using Siblings = std::vector<SegmentSpec>;

bool offer_segment_edit(const Case& c, const OfferCase& offer, int index, auto edit) {
  Case copy = c;
  edit_segment(copy.plan.segments, index, edit);
  return offer(std::move(copy));
}

SegmentSpec& numbered(Case& c, int index) {
  SegmentSpec* found = nullptr;
  edit_segment(c.plan.segments, index,
               [&](Siblings& siblings, std::size_t i) { found = &siblings[i]; });
  return *found;
}

/// Cuts the nested segments to their parent's range.
void clip(SegmentSpec& parent) {
  for (SegmentSpec& s : parent.nested) {
    s.begin = std::max(s.begin, parent.begin);
    s.end = std::min(s.end, parent.end);
    clip(s);
  }
  std::erase_if(parent.nested, [](const SegmentSpec& s) { return s.begin >= s.end; });
}

bool shorten(const Case& c, const OfferCase& offer, int index) {
  Case copy = c;
  const SegmentSpec s = numbered(copy, index);
  const int half = (s.end - s.begin) / 2;
  if (half == 0) return false;
  const std::array ranges{std::pair{s.begin + half, s.end}, std::pair{s.begin, s.end - half},
                          std::pair{s.begin + 1, s.end}, std::pair{s.begin, s.end - 1}};
  return std::any_of(ranges.begin(), ranges.end(), [&](auto range) {
    return offer_edited(c, offer, [&](Case& e) {
      SegmentSpec& edited = numbered(e, index);
      std::tie(edited.begin, edited.end) = range;
      clip(edited);
    });
  });
}

bool drop_segments(const Case& c, const OfferCase& offer, int segments) {
  for (int i = 0; i < segments; ++i) {
    if (offer_edited(c, offer, [&](Case& e) { e.plan.segments = {numbered(e, i)}; })) return true;
  }
  for (int i = 0; i < segments; ++i) {
    if (offer_segment_edit(c, offer, i, [](Siblings& siblings, std::size_t at) {
          siblings.erase(siblings.begin() + static_cast<std::ptrdiff_t>(at));
        })) {
      return true;
    }
  }
  for (int i = 0; i < segments; ++i) {
    if (offer_segment_edit(c, offer, i, [](Siblings& siblings, std::size_t at) {
          const Siblings nested = std::move(siblings[at].nested);
          const auto place = siblings.erase(siblings.begin() + static_cast<std::ptrdiff_t>(at));
          siblings.insert(place, nested.begin(), nested.end());
        })) {
      return true;
    }
  }
  return false;
}

/// Makes a model of images one of rows: convolutions become linear layers, pools become relu.
void make_rows(Case& c) {
  c.input.resize(2);
  for (LayerSpec& l : c.layers) {
    const bool pool = l.kind == LayerKind::max_pool2d || l.kind == LayerKind::avg_pool2d;
    if (pool) l.kind = LayerKind::relu;
    if (l.kind == LayerKind::conv2d) l.kind = LayerKind::linear;
    l.kernel = l.padding = 0;
    l.stride = 1;
  }
}

bool simplify_kind(const Case& c, const OfferCase& offer, std::size_t layer) {
  if (c.layers[layer].kind == LayerKind::linear) return false;
  const auto become = [&](LayerKind kind, double p) {
    return offer_edited(c, offer, [&](Case& e) {
      e.layers[layer] = LayerSpec{};
      e.layers[layer].kind = kind;
      e.layers[layer].p = p;
    });
  };
  return become(LayerKind::relu, 0) || become(LayerKind::dropout, 0.5);
}

bool simplify_details(const Case& c, const OfferCase& offer, std::size_t layer) {
  const LayerSpec usual;
  const LayerSpec& l = c.layers[layer];
  const int index = static_cast<int>(layer);
  const auto field = [&](auto member) {
    return set(
        c, offer, [&](Case & e) -> auto& { return e.layers[layer].*member; }, usual.*member);
  };
  // A tied group is frozen, and has a bias, as one.
  const auto group = [&](auto member) {
    if (l.*member == usual.*member) return false;
    return offer_edited(c, offer, [&](Case& e) {
      e.layers[layer].*member = usual.*member;
      for (LayerSpec& other : e.layers) {
        if (other.tied_to == index) other.*member = usual.*member;
      }
    });
  };
  if (field(&LayerSpec::stride) || field(&LayerSpec::padding) || field(&LayerSpec::in_place) ||
      field(&LayerSpec::stream) || field(&LayerSpec::tied_to) || group(&LayerSpec::bias) ||
      group(&LayerSpec::frozen)) {
    return true;
  }
  const bool has_p = l.kind == LayerKind::dropout || l.kind == LayerKind::gaussian_noise;
  if (has_p && set(
                   c, offer, [&](Case& e) -> double& { return e.layers[layer].p; }, 0.5)) {
    return true;
  }
  const std::optional<ValueRef> operand = ValueRef{index - 1, 0};
  return l.from && set(
                       c, offer, [&](Case & e) -> auto& { return e.layers[layer].from; }, operand);
}

}  // namespace

bool simplify_plan(const Case& c, const OfferCase& offer) {
  if (c.plan.offload && offer_edited(c, offer, [](Case& e) { e.plan.offload = false; })) {
    return true;
  }
  if (c.plan.sequential) return simplify_sequential(c, offer);
  const int segments = count_segments(c.plan.segments);
  if (drop_segments(c, offer, segments)) return true;
  for (int i = 0; i < segments; ++i) {
    if (shorten(c, offer, i)) return true;
  }
  for (int i = 0; i < segments; ++i) {
    const auto choice = [&](Case& e) -> CheckpointChoice& { return numbered(e, i).choice; };
    if (simplify_choice(c, offer, choice)) return true;
  }
  return false;
}

bool simplify_protocol(const Case& c, const OfferCase& offer) {
  const ProtocolSpec usual;
  const auto field = [&](auto member) {
    return set(
        c, offer, [&](Case & e) -> auto& { return e.protocol.*member; }, usual.*member);
  };
  const auto number = [&](auto member) {
    return reduce(
        c, offer, [&](Case& e) -> int& { return e.protocol.*member; }, 1);
  };
  const auto all_usual = [&](Case& e) {
    e.protocol = usual;
    e.dtype = DType::float32;
    e.data = DataKind::normal;
  };
  return offer_edited(c, offer, all_usual) ||
         offer_edited(c, offer,
                      [&](Case& e) {
                        all_usual(e);
                        e.protocol.input_requires_grad = c.protocol.input_requires_grad;
                      }) ||
         number(&ProtocolSpec::steps) || number(&ProtocolSpec::microbatches) ||
         number(&ProtocolSpec::backwards) || field(&ProtocolSpec::forwards_first) ||
         field(&ProtocolSpec::prior_gradients) || field(&ProtocolSpec::zero_grad) ||
         field(&ProtocolSpec::train) || field(&ProtocolSpec::input_requires_grad) ||
         field(&ProtocolSpec::loss) || field(&ProtocolSpec::momentum) ||
         field(&ProtocolSpec::optimizer) || field(&ProtocolSpec::learning_rate) ||
         field(&ProtocolSpec::mishap) || field(&ProtocolSpec::reevaluate) ||
         field(&ProtocolSpec::cast_cache) || field(&ProtocolSpec::autocast) ||
         (c.protocol.autocast == AutocastSpan::both &&
          offer_edited(c, offer, [](Case& e) { e.protocol.autocast = AutocastSpan::forward; })) ||
         offer_edited(c, offer,
                      [&](Case& e) {
                        e.protocol.autocast = usual.autocast;
                        e.protocol.cast_cache = usual.cast_cache;
                      }) ||
         set(
             c, offer, [](Case& e) -> DType& { return e.dtype; }, DType::float32) ||
         set(
             c, offer, [](Case& e) -> DataKind& { return e.data; }, DataKind::normal);
}

bool simplify_layers(const Case& c, const OfferCase& offer) {
  if (c.input.size() == 4 && offer_edited(c, offer, make_rows)) return true;
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    if (simplify_kind(c, offer, i) || simplify_details(c, offer, i)) return true;
  }
  return false;
}

bool simplify_sizes(const Case& c, const OfferCase& offer) {
  if (c.input.size() == 4) {
    if (offer_edited(c, offer, [](Case& e) { e.input.resize(2); })) return true;
  }
  // Skips and ties need equal widths, so these can only change together.
  for (const std::int64_t width : {1, 2, 3, 4}) {
    const auto narrow = [&](Case& e) {
      e.input[1] = std::min(e.input[1], width);
      for (LayerSpec& l : e.layers) l.features = std::min(l.features, width);
    };
    if (offer_edited(c, offer, narrow)) return true;
  }
  if (c.input.size() == 4) {
    for (const std::int64_t pixels : {1, 2, 3, 4}) {
      const auto crop = [&](Case& e) {
        for (const std::size_t i : {std::size_t{2}, std::size_t{3}}) {
          e.input[i] = std::min(e.input[i], pixels);
        }
      };
      if (offer_edited(c, offer, crop)) return true;
    }
  }
  for (std::size_t i = 0; i < c.input.size(); ++i) {
    if (reduce(
            c, offer, [i](Case& e) -> std::int64_t& { return e.input[i]; }, 1))
      return true;
  }
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    if (reduce(
            c, offer, [i](Case& e) -> std::int64_t& { return e.layers[i].features; }, 1) ||
        reduce(
            c, offer, [i](Case& e) -> std::int64_t& { return e.layers[i].kernel; }, 1)) {
      return true;
    }
  }
  return false;
}

}  // namespace rematch
