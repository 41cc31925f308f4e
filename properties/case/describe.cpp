#include "properties/case/describe.h"

#include <array>
#include <charconv>
#include <string_view>
#include <vector>

#include "engine/tensor/shape.h"
#include "properties/case/geometry.h"

namespace rematch {
namespace {

std::string number(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string plural(std::int64_t n, std::string_view thing) {
  return std::to_string(n) + " " + std::string(thing) + (n == 1 ? "" : "s");
}

std::string layer_words(const LayerSpec& l) {
  std::string text(to_string(l.kind));
  if (l.features != 0) text += " " + std::to_string(l.features);
  if (l.kernel != 0) text += " kernel " + std::to_string(l.kernel);
  if (l.stride != 1) text += " stride " + std::to_string(l.stride);
  if (l.padding != 0) text += " padding " + std::to_string(l.padding);
  if (l.kind == LayerKind::dropout || l.kind == LayerKind::gaussian_noise) {
    text += " " + number(l.p);
  }
  if (!l.bias) text += " without bias";
  if (l.in_place) text += " in place";
  if (l.frozen) text += " frozen";
  if (l.stream != 0) text += " from stream " + std::to_string(l.stream);
  if (l.tied_to != -1) text += " tied to " + std::to_string(l.tied_to);
  if (l.from) {
    text += l.from->layer < 0 ? " from the input" : " from " + std::to_string(l.from->layer);
    if (l.from->output != 0) text += "." + std::to_string(l.from->output);
  }
  return text;
}

std::string choice_words(const CheckpointChoice& choice) {
  std::string text(to_string(choice.variant));
  if (!choice.preserve_rng) text += ", random state not preserved";
  if (!choice.early_stop) text += ", no early stop";
  if (choice.determinism != CheckKind::metadata) {
    text += ", checks " + std::string(to_string(choice.determinism));
  }
  for (const KeepSpec& k : choice.keep) {
    text += &k == choice.keep.data() ? ", keeps " : " and ";
    text += std::string(k.index < 0 ? "every " : "") + std::string(to_string(k.kind));
    if (k.index >= 0) text += " " + std::to_string(k.index);
  }
  return text;
}

void place_brackets(const std::vector<SegmentSpec>& segments, std::vector<int>& opening,
                    std::vector<int>& closing) {
  for (const SegmentSpec& s : segments) {
    ++opening[static_cast<std::size_t>(s.begin)];
    ++closing[static_cast<std::size_t>(s.end - 1)];
    place_brackets(s.nested, opening, closing);
  }
}

std::string segment_words(const std::vector<SegmentSpec>& segments) {
  std::string text;
  for (const SegmentSpec& s : segments) {
    if (!text.empty()) text += "; ";
    text += s.end - s.begin == 1
                ? "layer " + std::to_string(s.begin)
                : "layers " + std::to_string(s.begin) + ".." + std::to_string(s.end - 1);
    text += " " + choice_words(s.choice);
    if (!s.nested.empty()) text += " {" + segment_words(s.nested) + "}";
  }
  return text;
}

std::string plan_words(const PlanSpec& plan) {
  if (plan.empty()) return "plain";
  if (plan.offload) {
    PlanSpec rest = plan;
    rest.offload = false;
    return plan_words(rest) + "; saved tensors offloaded to the host";
  }
  if (!plan.sequential) return segment_words(plan.segments);
  const SequentialSpec& s = *plan.sequential;
  return "sequential, " + plural(s.segments, "segment") +
         (s.last_stored ? ", the last stored, " : ", the last checkpointed too, ") +
         choice_words(s.choice);
}

std::string mishap_words(const MishapSpec& m) {
  const std::string layer = "layer " + std::to_string(m.layer);
  switch (m.kind) {
    case MishapKind::input_changed:
      return "the input changes before the backward";
    case MishapKind::weight_changed:
      return "the weight of " + layer + " changes before the backward";
    case MishapKind::op_exchanged:
      return "replays run another activation in " + layer;
    case MishapKind::forward_throws:
      return layer + " throws in the forward";
    case MishapKind::replay_throws:
      return layer + " throws in a replay";
    case MishapKind::graph_dropped:
      return "the graph is dropped";
    case MishapKind::none:
      break;
  }
  return "nothing happens";
}

std::string protocol_words(const Case& c) {
  const ProtocolSpec& p = c.protocol;
  std::string text = plural(p.steps, "step");
  if (p.microbatches > 1) {
    text += " of " + std::to_string(p.microbatches) + " microbatches";
    if (p.forwards_first) text += ", forwards first";
  }
  if (p.backwards > 1) text += ", " + plural(p.backwards, "backward") + " per forward";
  text += ", " + std::string(to_string(p.optimizer)) + " " + number(p.learning_rate);
  if (p.momentum != 0) text += " momentum " + number(p.momentum);
  text += ", " + std::string(to_string(p.loss));
  if (!p.train) text += ", eval mode";
  if (p.prior_gradients) text += ", prior gradients";
  if (!p.zero_grad) text += ", gradients kept";
  if (p.autocast != AutocastSpan::off) {
    text += p.autocast == AutocastSpan::both ? ", autocast around forward and backward"
                                             : ", autocast around the forward";
    if (!p.cast_cache) text += " without a cast cache";
  }
  if (p.mishap.kind != MishapKind::none)
    text += ", after a trial in which " + mishap_words(p.mishap);
  if (p.reevaluate) text += ", reevaluated";
  if (c.data != DataKind::normal) text += ", data of small integers";
  if (p.input_requires_grad) text += "; input requires grad";
  return text;
}

}  // namespace

std::string describe(const Case& c) {
  std::vector<int> opening(c.layers.size());
  std::vector<int> closing(c.layers.size());
  place_brackets(segments_of(c), opening, closing);
  std::string text(to_string(c.dtype));
  text += " " + to_string(Shape(c.input));
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    text += " -> " + std::string(static_cast<std::size_t>(opening[i]), '[') + std::to_string(i) +
            ": " + layer_words(c.layers[i]) +
            std::string(static_cast<std::size_t>(closing[i]), ']');
  }
  text += "\nplan: " + plan_words(c.plan);
  text += "\nprotocol: " + protocol_words(c);
  return text + "\nseed " + std::to_string(c.seed) + "\n";
}

}  // namespace rematch
