#include "properties/hunt/like_fault.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "properties/case/policy.h"
#include "properties/hunt/gather.h"
#include "properties/layers/layer.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

constexpr std::string_view kBuffers = "buffers-after-step";

/// Whether a policy of the plan keeps what a layer with a state computes.
bool keeps_state(const Case& c) {
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    if (layer_of(c.layers[i]).stateful && kept_by_policy(c, static_cast<int>(i))) return true;
  }
  return false;
}

/// What the engine with each fault does to the buffers of the case that was asked about last in
/// this thread: several entries ask about one violation.
class Model {
 public:
  const std::optional<Violation>& of(const Case& c, const Fault& fault) {
    if (!case_ || !(*case_ == c)) {
      case_ = c;
      by_fault_.clear();
    }
    const auto [at, is_new] = by_fault_.try_emplace(&fault);
    if (is_new) at->second = judge(fault);
    return at->second;
  }

 private:
  std::optional<Violation> judge(const Fault& fault) {
    Case c = *case_;
    c.options.clear();
    const bool is_foreign = std::any_of(c.layers.begin(), c.layers.end(),
                                        [](const LayerSpec& l) { return l.layer != nullptr; });
    // The engine does not say how often a state moves in these: what the subject's own policy keeps
    // is not moved on, what the plan's policy keeps may be written again (the state goes back to
    // what an earlier forward left), how often an inner segment runs depends on where early stop
    // ends its outer one, and the subject may let a trial pass that the engine ends.
    const bool is_nested = std::any_of(c.plan.segments.begin(), c.plan.segments.end(),
                                       [](const SegmentSpec& s) { return !s.nested.empty(); });
    const bool has_trial = c.protocol.failure.kind != FailureKind::none;
    if (is_foreign || is_nested || has_trial || policy_may_keep(case_->options) || keeps_state(c))
      return std::nullopt;
    try {
      EngineSubject wrong(fault.make);
      GatherOptions options;
      options.laws = laws_named({kBuffers});
      std::vector<Violation> found = judge_case(c, wrong, workspace_, options).violations;
      if (!found.empty()) return std::move(found.front());
    } catch (const std::exception&) {
      // The engine cannot run the case, and says nothing.
    }
    return std::nullopt;
  }

  std::optional<Case> case_;
  std::map<const Fault*, std::optional<Violation>> by_fault_;
  Workspace workspace_;
};

/// The element, without how many differ.
std::string_view element_of(std::string_view place) {
  return place.substr(0, place.find(" (first"));
}

double number(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

}  // namespace

bool contradicts(const Violation& violation, const Case& c, const Fault& fault) {
  if (violation.law != kBuffers) return false;
  thread_local Model model;
  const std::optional<Violation>& wrong = model.of(c, fault);
  if (!wrong || element_of(wrong->place) != element_of(violation.place)) return false;
  const double moved = number(violation.got) - number(violation.expected);
  const bool same_plain_run =
      std::abs(number(wrong->expected) - number(violation.expected)) <= std::abs(moved) / 64;
  return same_plain_run && moved * (number(wrong->got) - number(wrong->expected)) < 0;
}

}  // namespace rematch
