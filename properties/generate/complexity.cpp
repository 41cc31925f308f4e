#include <span>
#include <type_traits>

#include "properties/generate/edit.h"
#include "properties/generate/shrink.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

/// Costs of fields, by Cost: sizes apart from everything else.
struct Costs {
  std::uint64_t options = 0;
  std::uint64_t sizes = 0;
};

template <class Value>
std::uint64_t amount_of(const Value& value, const Value& usual) {
  if constexpr (std::is_enum_v<Value> || std::is_integral_v<Value>) {
    return static_cast<std::uint64_t>(value) - static_cast<std::uint64_t>(usual);
  } else {
    return value == usual ? 0 : 1;
  }
}
std::uint64_t amount_of(const std::vector<KeepSpec>& keep, const std::vector<KeepSpec>&) {
  std::uint64_t sum = 0;
  for (const KeepSpec& k : keep) sum += 1 + static_cast<std::uint64_t>(k.index + 1);
  return sum;
}
std::uint64_t amount_of(const Options& options, const Options&) { return options.size(); }
/// The distance from the nearest values.
std::uint64_t amount_of(const std::vector<ValueRef>& from, const std::vector<ValueRef>& nearest) {
  std::uint64_t sum = 0;
  for (const ValueRef& v : from) {
    sum += static_cast<std::uint64_t>(nearest[0].layer - v.layer) +
           static_cast<std::uint64_t>(v.output);
  }
  return sum;
}

template <class Value>
std::uint64_t size_of_field(const Value&) {
  return 0;
}
std::uint64_t size_of_field(const std::int64_t& size) { return static_cast<std::uint64_t>(size); }
std::uint64_t size_of_field(const std::vector<std::int64_t>& extents) {
  std::uint64_t sum = 0;
  for (const std::int64_t extent : extents) sum += static_cast<std::uint64_t>(extent);
  return sum;
}

template <class S>
Costs costs_of(const S& s, const S& simplest) {
  Costs costs;
  for_each_field(s, simplest, [&](const auto& field, const auto& value, const auto& usual) {
    switch (field.cost) {
      case Cost::none:
        return;
      case Cost::one:
      case Cost::two:
        if (!(value == usual)) costs.options += field.cost == Cost::one ? 1 : 2;
        return;
      case Cost::amount:
        costs.options += amount_of(value, usual);
        return;
      case Cost::size:
        costs.sizes += size_of_field(value);
        return;
    }
  });
  return costs;
}

void measure(std::span<const SegmentSpec> segments, std::uint64_t& covered,
             std::uint64_t& options) {
  for (const SegmentSpec& s : segments) {
    covered += static_cast<std::uint64_t>(s.end - s.begin);
    options += costs_of(s.choice, {}).options;
    measure(s.nested, covered, options);
  }
}

}  // namespace

Complexity complexity(const Case& c) {
  Complexity result;
  auto& [layers, form, segments, covered, options, protocol, details, sizes] = result.parts;
  layers = c.layers.size();
  segments = static_cast<std::uint64_t>(count_segments(c.plan.segments));
  measure(c.plan.segments, covered, options);
  if (c.plan.sequential) {
    form = 1;
    segments = static_cast<std::uint64_t>(c.plan.sequential->segments);
    options = costs_of(*c.plan.sequential, {}).options;
  }
  options += costs_of(c.plan, {}).options;
  const Costs of_case = costs_of(c, {});
  protocol = costs_of(c.protocol, {}).options + of_case.options;
  constexpr std::uint64_t kKindWeight = 1000;
  sizes = of_case.sizes;
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    const LayerSpec& l = c.layers[i];
    LayerSpec simplest;
    simplest.p = layer_of(l).simple_p;
    simplest.from = {{static_cast<int>(i) - 1, 0}};
    const Costs of_layer = costs_of(l, simplest);
    details += kKindWeight * static_cast<std::uint64_t>(layer_of(l).rank) + of_layer.options;
    sizes += of_layer.sizes;
  }
  return result;
}

}  // namespace rematch
