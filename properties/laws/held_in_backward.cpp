#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "properties/laws/allowance.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kHeldInBackward = "held-in-backward";

std::optional<Violation> compare_recomputations(const Evidence& e) {
  const std::vector<SegmentSpec> segments = segments_of(e.c);
  // Bytes held at the last moment that bounds the next recomputation.
  std::int64_t before = 0;
  std::pair forward{-1, -1};
  std::set<std::tuple<int, int, int>> begun;
  bool recorded = false;
  for (const LiveReading& r : e.checkpointed.held) {
    if (r.event == Event::node) continue;
    if (r.event != Event::layer) {
      before = r.live;
      if (r.event == Event::forward) forward = {r.step, r.microbatch};
      continue;
    }
    recorded = true;
    if (r.execution > 0) begun.emplace(r.step, r.microbatch, r.layer);
    // A layer with a backward of its own is recomputed within the forward.
    if (std::pair(r.step, r.microbatch) > forward) continue;
    // Nested segments that begin with the one around them are recomputed while more is held.
    const bool begins = std::any_of(segments.begin(), segments.end(), [&](const SegmentSpec& s) {
      return s.begin == r.layer && (s.nested.empty() ? r.execution > 0 : r.execution == 1);
    });
    if (!begins) continue;
    if (r.entered > before) {
      return Violation{
          kHeldInBackward,
          "when a recomputation begins, before " + place_of(e.c, r.step, r.microbatch, r.layer) +
              ", execution " + std::to_string(r.execution),
          "at most " + std::to_string(before) + " bytes held", std::to_string(r.entered)};
    }
    before = r.entered;
  }
  if (!recorded) {
    return Violation{kHeldInBackward, "bytes held when layers begin, checkpointed run", "recorded",
                     std::string(kNotRecorded)};
  }
  const auto begins = [&](int layer) {
    return std::any_of(segments.begin(), segments.end(),
                       [&](const SegmentSpec& s) { return s.begin == layer; });
  };
  for (const ExecutionCount& x : e.checkpointed.executions) {
    if (x.count < 2 || !begins(x.layer) || begun.contains({x.step, x.microbatch, x.layer})) {
      continue;
    }
    return Violation{kHeldInBackward,
                     "bytes held when a recomputation begins, before " +
                         place_of(e.c, x.step, x.microbatch, x.layer),
                     "recorded", std::string(kNotRecorded)};
  }
  return std::nullopt;
}

/// A graph that waits for its backward may hold more than that of the plain run only by that much.
std::int64_t beyond_per_graph(const Allowance& a, bool shown) {
  return shown ? a.saved(true) - a.saved_plain() : a.inputs();
}

/// Gradients may end at such a segment, because a reentrant one sees no tensors in a dictionary.
bool hides_outputs(const std::vector<SegmentSpec>& segments) {
  return std::any_of(segments.begin(), segments.end(), [](const SegmentSpec& s) {
    return s.choice.nested_outputs || hides_outputs(s.nested);
  });
}

// When the backward of a layer begins, those of the layers after it are over.
std::optional<Violation> compare_layers(const Evidence& e) {
  const bool shown = shows_saved(e);
  const Allowance allowance(e);
  // A layer behind a reentrant segment may save more than in the plain run, where that lets another
  // operand require grad.
  if (!e.forecast.saves_known) return std::nullopt;
  if (may_keep_states(e) || (allowance.keeps() && !shown)) return std::nullopt;
  if (resaves_may_vary(e)) return std::nullopt;
  std::vector<std::int64_t> beyond(e.c.layers.size());
  for (std::size_t i = 0; i < beyond.size(); ++i) {
    beyond[i] = allowance.beyond_at(static_cast<int>(i), shown);
  }
  const std::int64_t per_graph = beyond_per_graph(allowance, shown);
  std::map<std::tuple<int, int, int>, std::int64_t> plain;
  for (const LiveReading& r : e.plain.held) {
    if (r.event == Event::node) plain.try_emplace({r.step, r.microbatch, r.layer}, r.live);
  }
  const auto fired = [](const HookCount& h) { return h.count > 0; };
  if (plain.empty() && std::any_of(e.plain.hooks.begin(), e.plain.hooks.end(), fired)) {
    return Violation{kHeldInBackward, "bytes held when backwards of layers begin, plain run",
                     "recorded", std::string(kNotRecorded)};
  }
  auto unseen = plain;
  for (const LiveReading& r : e.checkpointed.held) {
    if (r.event != Event::node) continue;
    const auto at = plain.find({r.step, r.microbatch, r.layer});
    if (at == plain.end()) continue;
    unseen.erase(at->first);
    const std::int64_t most = at->second + beyond[static_cast<std::size_t>(r.layer)] +
                              graphs_after_backward(e.c.protocol, r.microbatch) * per_graph;
    if (r.live <= most) continue;
    const std::int64_t undropped =
        at->second + allowance.undropped_at(r.layer) +
        graphs_after_backward(e.c.protocol, r.microbatch) * allowance.undropped();
    return Violation{
        .law = kHeldInBackward,
        .place = "when the backward begins of " + place_of(e.c, r.step, r.microbatch, r.layer),
        .expected = "at most " + std::to_string(most) + " bytes held",
        .got = std::to_string(r.live),
        .beyond_undropped = r.live - undropped};
  }
  if (unseen.empty() || hides_outputs(segments_of(e.c))) return std::nullopt;
  const auto [step, microbatch, layer] = unseen.begin()->first;
  return Violation{
      kHeldInBackward,
      "bytes held when the backward begins of " + place_of(e.c, step, microbatch, layer),
      "recorded", std::string(kNotRecorded)};
}

std::optional<Violation> check_held_in_backward(const Evidence& e) {
  if (auto v = compare_recomputations(e)) return v;
  return compare_layers(e);
}

// Several backwards of one forward begin anew. Casts stay in their cache, copies on the host are
// held, too.
bool applies_held_in_backward(const Evidence& e) {
  const ProtocolSpec& p = e.c.protocol;
  return p.backwards == 1 && !p.partial && !p.auxiliary_losses && p.autocast == AutocastSpan::off &&
         !e.c.plan.offload && !hides_inputs(e.c.plan.segments) && !segments_of(e.c).empty();
}

}  // namespace

extern const Law held_in_backward_law;
const Law held_in_backward_law{
    .name = kHeldInBackward,
    .statement =
        "When a recomputation begins, no more of what layers made is held than when the one before "
        "began, or when the forward ended. When the backward of a layer begins, no more is held "
        "than in the plain run, minus what segments before it drop, plus their inputs and what a "
        "policy may keep: what was recomputed is gone once it was read.",
    .harm = "Several segments are alive at once, so the peak of memory is higher than planned.",
    .topic = Topic::memory,
    .check = check_held_in_backward,
    .reads = {Observable::held_bytes, Observable::held_layers},
    .applies = applies_held_in_backward};

}  // namespace rematch
