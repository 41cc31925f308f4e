#include <numeric>
#include <span>

#include "properties/generate/edit.h"
#include "properties/generate/shrink.h"

namespace rematch {
namespace {

std::uint64_t count(bool unusual) { return unusual ? 1 : 0; }

std::uint64_t options_of(const CheckpointChoice& choice) {
  const CheckpointChoice usual;
  return count(choice.variant != usual.variant) + count(!choice.preserve_rng) +
         count(!choice.early_stop) + count(choice.determinism != usual.determinism) +
         std::accumulate(choice.keep.begin(), choice.keep.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const KeepSpec& k) {
                           return sum + 1 + static_cast<std::uint64_t>(k.index + 1);
                         });
}

void measure(std::span<const SegmentSpec> segments, std::uint64_t& covered,
             std::uint64_t& options) {
  for (const SegmentSpec& s : segments) {
    covered += static_cast<std::uint64_t>(s.end - s.begin);
    options += options_of(s.choice);
    measure(s.nested, covered, options);
  }
}

std::uint64_t protocol_of(const Case& c) {
  const ProtocolSpec usual;
  const ProtocolSpec& p = c.protocol;
  return static_cast<std::uint64_t>(p.steps - 1) + static_cast<std::uint64_t>(p.microbatches - 1) +
         static_cast<std::uint64_t>(p.backwards - 1) + count(p.forwards_first) +
         count(p.prior_gradients) + count(!p.zero_grad) + count(!p.train) +
         count(p.input_requires_grad) + count(p.loss != usual.loss) +
         count(p.optimizer != usual.optimizer) + count(p.learning_rate != usual.learning_rate) +
         count(p.momentum != 0) + count(p.reevaluate) + static_cast<std::uint64_t>(p.autocast) +
         count(!p.cast_cache) + 2 * count(p.mishap.kind != MishapKind::none) +
         count(c.dtype != DType::float32) + count(c.data != DataKind::normal);
}

/// How much a reader has to know about the layer before it means something.
std::uint64_t kind_rank(LayerKind kind) {
  switch (kind) {
    case LayerKind::linear:
      return 0;
    case LayerKind::relu:
      return 1;
    case LayerKind::dropout:
    case LayerKind::flatten:
      return 2;
    default:
      return 3;
  }
}

std::uint64_t details_of(const LayerSpec& l, int index) {
  std::uint64_t details = count(!l.bias) + count(l.in_place) + count(l.frozen) +
                          count(l.tied_to != -1) + static_cast<std::uint64_t>(l.stride - 1) +
                          static_cast<std::uint64_t>(l.padding) + count(l.stream != 0);
  if (l.kind == LayerKind::dropout || l.kind == LayerKind::gaussian_noise) {
    details += count(l.p != 0.5);
  }
  if (l.from) {
    details += static_cast<std::uint64_t>(index - 1 - l.from->layer) +
               static_cast<std::uint64_t>(l.from->output);
  }
  return details;
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
    options = options_of(c.plan.sequential->choice) + count(!c.plan.sequential->last_stored);
  }
  options += count(c.plan.offload);
  protocol = protocol_of(c);
  constexpr std::uint64_t kKindWeight = 1000;
  int index = 0;
  for (const LayerSpec& l : c.layers) {
    details += kKindWeight * kind_rank(l.kind) + details_of(l, index++);
    sizes += static_cast<std::uint64_t>(l.features + l.kernel);
  }
  sizes = std::accumulate(c.input.begin(), c.input.end(), sizes, [](std::uint64_t sum, auto d) {
    return sum + static_cast<std::uint64_t>(d);
  });
  return result;
}

}  // namespace rematch
