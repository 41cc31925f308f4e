#include "properties/case/rules.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "properties/case/geometry.h"
#include "properties/case/policy.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

[[noreturn]] void invalid(const std::string& place, const std::string& expected,
                          const std::string& got) {
  throw std::invalid_argument("[case] " + place + ", expected " + expected + ", got " + got);
}

std::string range_text(int begin, int end) {
  return "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

bool begins_within(std::span<const SegmentSpec> segments, int low, int high) {
  for (const SegmentSpec& s : segments) {
    if (s.begin > low && s.begin <= high) return true;
    if (begins_within(s.nested, low, high)) return true;
  }
  return false;
}

/// Does a segment of any level begin at a layer in (low, high].
bool segment_begins_within(const Case& c, int low, int high) {
  if (!c.plan.sequential) return begins_within(c.plan.segments, low, high);
  const SequentialSpec& s = *c.plan.sequential;
  const int size = static_cast<int>(c.layers.size()) / s.segments;
  const int checkpointed = s.last_stored ? s.segments - 1 : s.segments;
  for (int i = 0; i < checkpointed; ++i) {
    if (i * size > low && i * size <= high) return true;
  }
  return false;
}

void check_keep(const CheckpointChoice& choice, const char* place) {
  for (const KeepSpec& k : choice.keep) {
    if (!op_named(k.op)) {
      invalid(std::string(place) + ".keep", "an op that computes", std::string(k.op));
    }
    if (k.index < -1)
      invalid(std::string(place) + ".keep: index", "-1 or more", std::to_string(k.index));
  }
  if (!choice.keep.empty() && choice.variant == Variant::reentrant) {
    invalid(std::string(place) + ": keep belongs to the non_reentrant variant", "none",
            std::to_string(choice.keep.size()));
  }
}

bool preserve_rng(std::span<const SegmentSpec> segments) {
  return std::all_of(segments.begin(), segments.end(), [](const SegmentSpec& s) {
    return s.choice.preserve_rng && preserve_rng(s.nested);
  });
}

void check_failure(const Case& c) {
  const InjectedFailure& m = c.protocol.failure;
  const int layers = static_cast<int>(c.layers.size());
  const std::string name(to_string(m.kind));
  if (m.kind == FailureKind::input_changed && vocabulary_of(c.layers) > 0) {
    invalid("protocol: failure input_changed", "a model whose input is numbers", "tokens");
  }
  if (!has_layer(m.kind)) {
    if (m.layer == 0) return;
    invalid("protocol: inject_layer of failure " + name, "none", std::to_string(m.layer));
  }
  if (m.layer < 0 || m.layer >= layers) {
    invalid("protocol: inject_layer", "0.." + std::to_string(layers - 1), std::to_string(m.layer));
  }
  const LayerSpec& layer = c.layers[static_cast<std::size_t>(m.layer)];
  if (can_happen(m.kind, layer)) return;
  invalid("protocol: failure " + name,
          m.kind == FailureKind::weight_changed ? "a layer with parameters"
                                                : "an activation that is not in place",
          "layer " + std::to_string(m.layer) + " (" + std::string(to_string(layer.kind)) + ")");
}

bool keeps_any(std::span<const SegmentSpec> segments) {
  return std::any_of(segments.begin(), segments.end(), [](const SegmentSpec& s) {
    return !s.choice.keep.empty() || keeps_any(s.nested);
  });
}

void check_choice(const CheckpointChoice& choice, const char* place) {
  check_keep(choice, place);
  if (choice.variant == Variant::non_reentrant) return;
  if (!choice.early_stop) {
    invalid(std::string(place) + ": early_stop belongs to the non_reentrant variant", "true",
            "false");
  }
  if (choice.arguments == Arguments::keywords) {
    invalid(std::string(place) + ": arguments by keyword belong to the non_reentrant variant",
            "tensors", std::string(to_string(choice.arguments)));
  }
  if (choice.determinism != CheckKind::metadata) {
    invalid(std::string(place) + ": determinism belongs to the non_reentrant variant", "metadata",
            std::string(to_string(choice.determinism)));
  }
}

void check_segments(std::span<const SegmentSpec> segments, int begin, int end, int depth) {
  if (depth > kMaxNesting) {
    invalid("plan: segments are nested too deeply",
            "at most " + std::to_string(kMaxNesting) + " levels", "more");
  }
  int cursor = begin;
  for (const SegmentSpec& s : segments) {
    if (s.begin >= s.end) {
      invalid("plan: segment " + range_text(s.begin, s.end) + " is empty", "begin < end",
              range_text(s.begin, s.end));
    }
    if (s.begin < cursor || s.end > end) {
      const bool outside = s.begin < begin || s.end > end;
      invalid(outside ? depth == 1 ? "plan: a segment lies outside the model"
                                   : "plan: a nested segment lies outside its parent"
                      : "plan: segments overlap or are out of order",
              "a range within " + range_text(cursor, end), range_text(s.begin, s.end));
    }
    check_choice(s.choice, "plan");
    if (!s.choice.keep.empty() && !s.nested.empty()) {
      invalid("plan: segment " + range_text(s.begin, s.end) + " keeps results",
              "no nested segments", std::to_string(s.nested.size()));
    }
    if (!s.nested.empty()) check_segments(s.nested, s.begin, s.end, depth + 1);
    cursor = s.end;
  }
}

void check_int(std::string_view name, int value, int low, int high) {
  if (value < low || value > high) {
    invalid("protocol: " + std::string(name), std::to_string(low) + ".." + std::to_string(high),
            std::to_string(value));
  }
}

}  // namespace

bool can_happen(FailureKind kind, const LayerSpec& layer) {
  switch (kind) {
    case FailureKind::weight_changed:
      // Whether a custom layer saves its weight, and so notices, only the subject knows.
      return has_parameters(layer) && layer.layer == nullptr;
    case FailureKind::op_exchanged:
    case FailureKind::shape_changed:
    case FailureKind::value_changed:
      return !layer.in_place && layer_of(layer).exchangeable;
    default:
      return true;
  }
}

bool preserves_rng_everywhere(const Case& c) {
  const PlanSpec& plan = c.plan;
  return plan.sequential ? plan.sequential->choice.preserve_rng : preserve_rng(plan.segments);
}

const char* in_place_hazard(const Case& c, int layer) {
  const auto at = [&](int i) -> const Layer& {
    return layer_of(c.layers[static_cast<std::size_t>(i)]);
  };
  int base = layer - 1;
  while (base >= 0 && at(base).view) --base;
  if (base < 0) return "overwrites the model input";
  if (!at(base).overwritable) {
    return "overwrites a value that the layer before it saved or did not make";
  }
  if (c.protocol.autocast != AutocastSpan::off && at(base).low_precision) {
    return "overwrites a bfloat16 value";
  }
  if (kept_by_policy(c, base)) return "overwrites a result that a policy keeps";
  if (segment_begins_within(c, base, layer)) return "overwrites the input of a segment";
  for (const LayerSpec& other : c.layers) {
    for (const ValueRef v : other.from) {
      if (v.layer >= base && v.layer < layer) return "overwrites a value that another layer reads";
    }
  }
  return nullptr;
}

namespace {

bool any_reentrant(std::span<const SegmentSpec> segments) {
  return std::any_of(segments.begin(), segments.end(), [](const SegmentSpec& s) {
    return s.choice.variant == Variant::reentrant || any_reentrant(s.nested);
  });
}

bool any_reentrant(const PlanSpec& plan) {
  return plan.sequential ? plan.sequential->choice.variant == Variant::reentrant
                         : any_reentrant(plan.segments);
}

bool keeps_any(const PlanSpec& plan) {
  return plan.sequential ? !plan.sequential->choice.keep.empty() : keeps_any(plan.segments);
}

constexpr const char* kServesOne = "what a policy keeps serves one backward";

/// Why not, or nullptr.
const char* no_partial(const PlanSpec& plan) {
  if (any_reentrant(plan)) return "reentrant segments refuse backwards to some tensors";
  return keeps_any(plan) ? kServesOne : nullptr;
}

const char* no_auxiliary_losses(const Case& c) {
  if (any_reentrant(c.plan) && !c.protocol.input_requires_grad) {
    return "outputs of reentrant segments require grad whatever their inputs do";
  }
  return keeps_any(c.plan) ? kServesOne : nullptr;
}

const char* no_loss_scale(const Case& c) {
  const ProtocolSpec& p = c.protocol;
  if (c.dtype != DType::float32) return "float32";
  if (p.optimizer != OptimizerKind::sgd || p.momentum != 0) return "sgd without momentum";
  return p.zero_grad && !p.prior_gradients ? nullptr : "gradients that begin with none";
}

}  // namespace

bool takes_partial(const PlanSpec& plan) { return no_partial(plan) == nullptr; }
bool takes_loss_scale(const Case& c) { return no_loss_scale(c) == nullptr; }
bool takes_auxiliary_losses(const Case& c) { return no_auxiliary_losses(c) == nullptr; }

void check_inputs(const Case& c) {
  constexpr int kMost = 3;
  const int further = c.further_inputs;
  if (further < 0 || further > kMost) {
    invalid("further_inputs", "0.." + std::to_string(kMost), std::to_string(further));
  }
  if (further > 0 && vocabulary_of(c.layers) > 0) {
    invalid("further_inputs beside tokens", "0", std::to_string(further));
  }
  const int with_grad = c.protocol.further_inputs_with_grad;
  if (with_grad < 0 || with_grad > further) {
    invalid("protocol: further_inputs_with_grad", "0.." + std::to_string(further),
            std::to_string(with_grad));
  }
  for (int input = 1; input <= further; ++input) {
    if (reads(c.layers, {-1, input})) continue;
    invalid("further input " + std::to_string(input), "a layer that reads it", "none");
  }
}

void check_plan(const Case& c) {
  if (keeps_any(c.plan) && c.protocol.backwards > 1) {
    invalid(std::string("protocol: ") + kServesOne + "; backwards", "1",
            std::to_string(c.protocol.backwards));
  }
  if (const char* why = c.protocol.partial ? no_partial(c.plan) : nullptr) {
    invalid(std::string("protocol: ") + why + "; partial", "false", "true");
  }
  if (const char* why = c.protocol.auxiliary_losses ? no_auxiliary_losses(c) : nullptr) {
    invalid(std::string("protocol: ") + why + "; auxiliary_losses", "false", "true");
  }
  const PromiseSpec& promise = c.plan.promise;
  for (const std::int64_t number : {promise.peak_bytes, promise.recomputations}) {
    if (number < PromiseSpec::kNone) {
      invalid("plan.promise", "numbers from 0 on", std::to_string(number));
    }
  }
  const int layers = static_cast<int>(c.layers.size());
  if (!c.plan.sequential) {
    check_segments(c.plan.segments, 0, layers, 1);
    return;
  }
  if (!c.plan.segments.empty()) {
    invalid("plan: sequential excludes explicit segments", "one of the two", "both");
  }
  const int segments = c.plan.sequential->segments;
  if (segments < 1 || segments > layers) {
    invalid("plan.sequential: segments", "1.." + std::to_string(layers), std::to_string(segments));
  }
  check_choice(c.plan.sequential->choice, "plan.sequential");
}

void check_protocol(const Case& c) {
  const ProtocolSpec& p = c.protocol;
  if (p.autocast != AutocastSpan::off && c.dtype != DType::float32) {
    invalid("protocol: autocast belongs to float32", "off", std::string(to_string(p.autocast)));
  }
  if (!p.cast_cache && p.autocast == AutocastSpan::off) {
    invalid("protocol: cast_cache belongs to autocast", "true", "false");
  }
  if (p.input_requires_grad && vocabulary_of(c.layers) > 0) {
    invalid("protocol: tokens have no gradient; input_requires_grad", "false", "true");
  }
  check_failure(c);
  if (p.failure.kind != FailureKind::none && !preserves_rng_everywhere(c)) {
    invalid("protocol: an injected failure needs segments with preserve_rng", "true", "false");
  }
  for_each_field(p, [&](const auto& field, const auto& value, const auto&) {
    if constexpr (std::is_same_v<decltype(value), const int&>) {
      if (field.low < field.high) check_int(field.name, value, field.low, field.high);
    }
  });
  if (!std::isfinite(p.learning_rate) || p.learning_rate < 0 || p.learning_rate > 1e3) {
    invalid("protocol: learning_rate", "a number in [0, 1000]", std::to_string(p.learning_rate));
  }
  if (!(p.momentum >= 0 && p.momentum < 1)) {
    invalid("protocol: momentum", "a number in [0, 1)", std::to_string(p.momentum));
  }
  if (p.momentum != 0 && p.optimizer != OptimizerKind::sgd) {
    invalid("protocol: momentum belongs to sgd", "0", std::to_string(p.momentum));
  }
  if (!(p.clip >= 0 && p.clip <= 1e6)) {
    invalid("protocol: clip", "a number in [0, 1e6]", std::to_string(p.clip));
  }
  if (!(p.loss_scale >= 0 && p.loss_scale <= 0x1p126)) {
    invalid("protocol: loss_scale", "a number in [0, 2^126]", std::to_string(p.loss_scale));
  }
  if (const char* why = p.loss_scale != 0 ? no_loss_scale(c) : nullptr) {
    invalid(std::string("protocol: loss_scale needs ") + why + "; loss_scale", "0",
            std::to_string(p.loss_scale));
  }
}

}  // namespace rematch
