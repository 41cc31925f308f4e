#include "properties/case/describe.h"

#include <array>
#include <charconv>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/tensor/shape.h"
#include "properties/case/geometry.h"
#include "properties/layers/custom_layer.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

template <class Value>
std::string text_of(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return std::string(to_string(value));
  } else if constexpr (std::is_floating_point_v<Value>) {
    std::array<char, 32> text{};
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
  } else if constexpr (std::is_integral_v<Value>) {
    return std::to_string(value);
  } else {
    return {};
  }
}

std::string text_of(const CustomLayer* const& layer) {
  return layer == nullptr ? std::string() : layer->name;
}

std::string text_of(const std::vector<ValueRef>& operands) {
  std::string text;
  for (const ValueRef v : operands) {
    if (!text.empty()) text += " and ";
    if (v.layer < 0) {
      text += v.output == 0 ? "the input" : "further input " + std::to_string(v.output);
      continue;
    }
    text += std::to_string(v.layer);
    if (v.output != 0) text += "." + std::to_string(v.output);
  }
  return text;
}

std::string text_of(const std::vector<KeepSpec>& keep) {
  std::string text;
  for (const KeepSpec& k : keep) {
    if (!text.empty()) text += " and ";
    text += (k.index < 0 ? "every " : "") + std::string(k.op);
    if (k.index >= 0) text += " " + std::to_string(k.index);
  }
  return text;
}

template <class Value>
std::string phrase_of(std::string_view phrase, const Value& value) {
  std::string text(phrase);
  const auto replace = [&](std::string_view mark, const std::string& by) {
    if (const auto at = text.find(mark); at != std::string::npos) text.replace(at, mark.size(), by);
  };
  const std::string shown = text_of(value);
  replace("{s}", shown == "1" ? "" : "s");
  replace("{es}", shown == "1" ? "" : "es");
  replace("{}", shown);
  return text;
}

/// The phrases for the fields of `s`, each after `before`.
template <class S>
std::string fields_in_words(const S& s, std::string_view before) {
  std::string text;
  for_each_field(s, [&](const auto& field, const auto& value, const auto& usual) {
    if (field.phrase.empty() || (value == usual && !field.always_said)) return;
    text += std::string(before) + phrase_of(field.phrase, value);
  });
  return text;
}

/// The same as a list.
template <class S>
std::string listed(const S& s) {
  const std::string text = fields_in_words(s, ", ");
  return text.empty() ? text : text.substr(2);
}

void place_brackets(const std::vector<SegmentSpec>& segments, std::vector<int>& opening,
                    std::vector<int>& closing) {
  for (const SegmentSpec& s : segments) {
    ++opening[static_cast<std::size_t>(s.begin)];
    ++closing[static_cast<std::size_t>(s.end - 1)];
    place_brackets(s.nested, opening, closing);
  }
}

std::string segments_in_words(const std::vector<SegmentSpec>& segments) {
  std::string text;
  for (const SegmentSpec& s : segments) {
    if (!text.empty()) text += "; ";
    text += s.end - s.begin == 1
                ? "layer " + std::to_string(s.begin)
                : "layers " + std::to_string(s.begin) + ".." + std::to_string(s.end - 1);
    text += " " + listed(s.choice);
    if (!s.nested.empty()) text += " {" + segments_in_words(s.nested) + "}";
  }
  return text;
}

std::string plan_in_words(const PlanSpec& plan) {
  if (plan.empty()) return "plain";
  std::string text = plan.sequential         ? "sequential, " + listed(*plan.sequential)
                     : plan.segments.empty() ? "plain"
                                             : segments_in_words(plan.segments);
  return text + fields_in_words(plan, "; ") + fields_in_words(plan.promise, "; ");
}

std::string failure_in_words(const InjectedFailure& m) {
  const std::string layer = "layer " + std::to_string(m.layer);
  switch (m.kind) {
    case FailureKind::input_changed:
      return "the input changes before the backward";
    case FailureKind::weight_changed:
      return "the weight of " + layer + " changes before the backward";
    case FailureKind::op_exchanged:
      return "recomputations run another activation in " + layer;
    case FailureKind::forward_throws:
      return layer + " throws in the forward";
    case FailureKind::recomputation_throws:
      return layer + " throws in a recomputation";
    case FailureKind::graph_dropped:
      return "the graph is dropped";
    case FailureKind::shape_changed:
      return "recomputations exchange the last two extents of what " + layer + " gets";
    case FailureKind::value_changed:
      return "recomputations change the last element of what " + layer + " gets";
    case FailureKind::none:
      break;
  }
  return "nothing happens";
}

}  // namespace

std::string describe(const Case& c) {
  std::vector<int> opening(c.layers.size());
  std::vector<int> closing(c.layers.size());
  place_brackets(segments_of(c), opening, closing);
  std::string text(to_string(c.dtype));
  text += " " + to_string(Shape(c.input));
  if (vocabulary_of(c.layers) > 0) text += " tokens";
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    text += " -> " + std::string(static_cast<std::size_t>(opening[i]), '[') + std::to_string(i) +
            ": " + std::string(to_string(c.layers[i].kind)) + fields_in_words(c.layers[i], " ") +
            std::string(static_cast<std::size_t>(closing[i]), ']');
  }
  text += "\nplan: " + plan_in_words(c.plan);
  text += "\nprotocol: " + listed(c.protocol) + fields_in_words(c, ", ");
  const InjectedFailure& failure = c.protocol.failure;
  if (failure.kind != FailureKind::none)
    text += "; after a trial in which " + failure_in_words(failure);
  if (!c.options.empty()) text += "\noptions: " + to_string(c.options);
  return text + "\nseed " + std::to_string(c.seed) + "\n";
}

}  // namespace rematch
