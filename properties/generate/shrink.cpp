#include "properties/generate/shrink.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "properties/case/geometry.h"
#include "properties/generate/edit.h"
#include "properties/generate/parts.h"
#include "properties/generate/simplify.h"

namespace rematch {
namespace {

/// Hands repaired, valid and strictly simpler cases to `visit` until it returns true.
class Descent {
 public:
  Descent(const Case& c, const Scope& scope, const std::function<bool(Case&&)>& visit)
      : c_(c),
        scope_(scope),
        complexity_(complexity(c)),
        needs_grad_(loss_requires_grad(c)),
        visit_(visit) {}

  bool offer(Case candidate) {
    repair(candidate);
    // Without its last trainable layer the model still has something to differentiate.
    if (needs_grad_ && !loss_requires_grad(candidate)) {
      require_grad(candidate);
    }
    if (!(complexity(candidate) < complexity_)) return false;
    try {
      const Geometry geometry = validate(candidate);
      if (!scope_.allows_all() && !scope_.features.contains_all(features_of(candidate, geometry))) {
        return false;
      }
    } catch (const std::invalid_argument&) {
      return false;
    }
    return visit_(std::move(candidate));
  }

  bool run() {
    if (!c_.plan.empty()) {
      Case plain = c_;
      plain.plan = {};
      if (offer(std::move(plain))) return true;
    }
    const auto offer_all = [this](Case&& candidate) { return offer(std::move(candidate)); };
    return remove_layers() || simplify_plan(c_, offer_all) || simplify_protocol(c_, offer_all) ||
           simplify_layers(c_, offer_all) || simplify_sizes(c_, offer_all);
  }

 private:
  bool remove_layers() {
    const int layers = static_cast<int>(c_.layers.size());
    for (int length = layers - 1; length >= 1; length = length > 3 ? length / 2 : length - 1) {
      // Short ranges at every offset: a layer often goes only together with its neighbour.
      const int stride = length <= 3 ? 1 : length / 2;
      for (int end = layers; end - length >= 0; end -= stride) {
        if (offer(without_layers(c_, end - length, end))) return true;
      }
      if (offer(begun_after(length))) return true;
    }
    return false;
  }

  /// Without the first layers, on an input like the value that they hand on.
  Case begun_after(int layers) const {
    const Geometry geometry = validate(c_);
    const Shape& value = geometry.outputs[static_cast<std::size_t>(layers) - 1].front();
    Case later = without_layers(c_, 0, layers);
    later.input.assign(value.dims().begin(), value.dims().end());
    return later;
  }

  const Case& c_;
  const Scope& scope_;
  Complexity complexity_;
  bool needs_grad_;
  const std::function<bool(Case&&)>& visit_;
};

bool visit_candidates(const Case& c, const Scope& scope, const std::function<bool(Case&&)>& visit) {
  return Descent(c, scope, visit).run();
}

}  // namespace

std::vector<Case> shrink_candidates(const Case& c, const Scope& scope) {
  std::vector<Case> candidates;
  visit_candidates(c, scope, [&](Case&& candidate) {
    candidates.push_back(std::move(candidate));
    return false;
  });
  return candidates;
}

Case shrink(Case failing, const std::function<bool(const Case&)>& still_fails, ShrinkBudget budget,
            const Scope& scope) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(budget.seconds);
  int steps = 0;
  bool spent = false;
  bool found = true;
  while (found && !spent) {
    Case smaller;
    found = false;
    visit_candidates(failing, scope, [&](Case&& candidate) {
      spent = steps >= budget.steps || Clock::now() >= end;
      if (spent) return true;
      ++steps;
      if (!still_fails(candidate)) return false;
      smaller = std::move(candidate);
      found = true;
      return true;
    });
    if (found) failing = std::move(smaller);
  }
  return failing;
}

}  // namespace rematch
