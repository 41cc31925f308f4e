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
#include "properties/layers/layer.h"

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

/// Gives one field of a part of the case its usual value, or makes it smaller; `access` finds the
/// part in a copy of the case, `usual` says what is usual there.
template <class S>
bool simplify_fields(const Case& c, const OfferCase& offer, auto access, const S& usual) {
  Case copy = c;
  const S& part = access(copy);
  bool taken = false;
  for_each_field(part, usual, [&](const auto& field, const auto& value, const auto& wanted) {
    if (taken || value == wanted || field.cost == Cost::none || field.cost == Cost::size) return;
    const auto with = [&](const auto& simpler) {
      return offer_edited(c, offer, [&](Case& e) {
        for_each_field(access(e), usual, [&](const auto& same, auto& edited, const auto&) {
          if constexpr (std::is_assignable_v<decltype(edited), decltype(simpler)>) {
            if (same.name == field.name) edited = simpler;
          }
        });
      });
    };
    using Value = std::remove_cvref_t<decltype(value)>;
    taken = with(wanted);
    if constexpr (std::is_integral_v<Value> && !std::is_same_v<Value, bool>) {
      for (const Value v : smaller(value, wanted)) {
        taken = taken || (field.cost == Cost::amount && with(v));
      }
    } else if constexpr (std::is_enum_v<Value>) {
      const int steps = static_cast<int>(value) - static_cast<int>(wanted);
      for (int i = 1; i < steps && field.cost == Cost::amount; ++i) {
        taken = taken || with(static_cast<Value>(static_cast<int>(wanted) + i));
      }
    }
  });
  return taken;
}

bool simplify_choice(const Case& c, const OfferCase& offer, auto access) {
  CheckpointChoice reentrant;
  reentrant.variant = Variant::reentrant;
  return offer_edited(c, offer, [&](Case& e) { access(e) = {}; }) ||
         offer_edited(c, offer, [&](Case& e) { access(e) = reentrant; }) ||
         simplify_keep(c, offer, access) || simplify_fields(c, offer, access, CheckpointChoice{});
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
         offer_edited(c, offer, [&](Case& e) { plan(e).last_stored = true; }) ||
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

/// Makes a model of images one of rows.
void make_rows(Case& c) {
  if (c.input.size() == 3) c.input.erase(c.input.begin() + 1);
  c.input.resize(2);
  for (LayerSpec& l : c.layers) {
    const std::string_view other = layer_of(l).on_rows;
    if (!other.empty()) l.kind = layer_kind(other);
    for_each_field(l, [&](const auto& field, auto& value, const auto& usual) {
      if (!layer_of(l).takes(field.name)) value = usual;
    });
  }
}

/// Heads that are tied to an embedding have an output for each token.
bool reduce_vocabulary(const Case& c, const OfferCase& offer, std::size_t layer) {
  const auto values = smaller(c.layers[layer].vocabulary, std::int64_t{1});
  return std::any_of(values.begin(), values.end(), [&](std::int64_t tokens) {
    return offer_edited(c, offer, [&](Case& e) {
      e.layers[layer].vocabulary = tokens;
      for (LayerSpec& l : e.layers) {
        if (l.tied_to == static_cast<int>(layer)) l.features = tokens;
      }
    });
  });
}

bool simplify_kind(const Case& c, const OfferCase& offer, std::size_t layer) {
  const int rank = layer_of(c.layers[layer]).rank;
  if (layer_of(c.layers[layer]).takes_tokens()) {
    // A stand-in below would leave nothing to train.
    const auto take_numbers = [&](Case& e) {
      LayerSpec& l = e.layers[layer];
      l.kind = layer_kind(layer_of(l).on_numbers);
      l.vocabulary = 0;
      e.input.push_back(l.features);
    };
    if (offer_edited(c, offer, take_numbers)) return true;
  }
  for (std::size_t i = 0; i < kLayerKinds && rank > 0; ++i) {
    const auto kind = static_cast<LayerKind>(i);
    if (!layer_of(kind).stands_in) continue;
    const auto become = [&](Case& e) {
      e.layers[layer] = LayerSpec{};
      e.layers[layer].kind = kind;
      e.layers[layer].p = layer_of(kind).simple_p;
    };
    if (offer_edited(c, offer, become)) return true;
  }
  return false;
}

bool simplify_details(const Case& c, const OfferCase& offer, std::size_t layer) {
  const LayerSpec& l = c.layers[layer];
  const int index = static_cast<int>(layer);
  LayerSpec simplest;
  simplest.p = layer_of(l).simple_p;
  if (!l.from.empty()) simplest.from.assign(l.from.size(), ValueRef{index - 1, 0});
  const auto access = [layer](Case& e) -> LayerSpec& { return e.layers[layer]; };
  if (simplify_fields(c, offer, access, simplest)) return true;
  // A tied group is frozen, and has a bias, as one.
  const auto group = [&](auto member) {
    if (l.*member == simplest.*member) return false;
    return offer_edited(c, offer, [&](Case& e) {
      e.layers[layer].*member = simplest.*member;
      for (LayerSpec& other : e.layers) {
        if (other.tied_to == index) other.*member = simplest.*member;
      }
    });
  };
  return group(&LayerSpec::bias) || group(&LayerSpec::frozen);
}

}  // namespace

bool simplify_plan(const Case& c, const OfferCase& offer) {
  if (c.plan.promise != PromiseSpec{}) {
    // It is about these segments: fewer would break it without anybody's fault.
    return offer_edited(c, offer, [](Case& e) { e.plan.promise = {}; });
  }
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
  const auto all_usual = [&](Case& e) {
    e.protocol = usual;
    e.dtype = DType::float32;
    e.data = DataKind::normal;
  };
  const auto but_the_input = [&](Case& e) {
    all_usual(e);
    e.protocol.input_requires_grad = c.protocol.input_requires_grad;
    e.protocol.further_inputs_with_grad = c.protocol.further_inputs_with_grad;
  };
  const auto without_autocast = [&](Case& e) {
    e.protocol.autocast = usual.autocast;
    e.protocol.cast_cache = usual.cast_cache;
  };
  const auto without_failure = [](Case& e) { e.protocol.failure = {}; };
  const auto without_option = [&](const auto& option) {
    return offer_edited(c, offer, [&](Case& e) { e.options.erase(option.first); });
  };
  const auto protocol = [](Case& e) -> ProtocolSpec& { return e.protocol; };
  const auto whole = [](Case& e) -> Case& { return e; };
  const bool casts = c.protocol.autocast != usual.autocast;
  const bool failure = c.protocol.failure != InjectedFailure{};
  return offer_edited(c, offer, all_usual) || offer_edited(c, offer, but_the_input) ||
         (failure && offer_edited(c, offer, without_failure)) ||
         (casts && offer_edited(c, offer, without_autocast)) ||
         simplify_fields(c, offer, protocol, usual) || simplify_fields(c, offer, whole, Case{}) ||
         std::any_of(c.options.begin(), c.options.end(), without_option);
}

bool simplify_layers(const Case& c, const OfferCase& offer) {
  if (c.input.size() > 2 && offer_edited(c, offer, make_rows)) return true;
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    if (simplify_kind(c, offer, i) || simplify_details(c, offer, i)) return true;
  }
  return false;
}

bool simplify_sizes(const Case& c, const OfferCase& offer) {
  if (c.input.size() >= 4) {
    const auto fewer = [&](std::size_t count) {
      return offer_edited(c, offer, [&](Case& e) { e.input.resize(count); });
    };
    if (fewer(2) || (c.input.size() > 4 && fewer(c.input.size() - 1))) return true;
  }
  // Skips and ties need equal widths, so these can only change together.
  for (const std::int64_t width : {1, 2, 3, 4}) {
    const auto narrow = [&](Case& e) {
      std::int64_t& extent = e.input[e.input.size() == 3 ? 2 : 1];
      extent = std::min(extent, width);
      for (LayerSpec& l : e.layers) {
        l.features = std::min(l.features, width);
        l.vocabulary = std::min(l.vocabulary, width);
      }
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
        reduce_vocabulary(c, offer, i) ||
        reduce(
            c, offer, [i](Case& e) -> std::int64_t& { return e.layers[i].kernel; }, 1)) {
      return true;
    }
  }
  return false;
}

}  // namespace rematch
