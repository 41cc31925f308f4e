#include "properties/hunt/like_fault.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/rules.h"
#include "properties/forecast/forecast.h"
#include "properties/hunt/gather.h"
#include "properties/layers/layer.h"
#include "properties/layers/normalised.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

/// Violations by the engine with each fault of the case that was asked about last in this thread:
/// the violations of one case are asked about one after the other, by several entries.
class Model {
 public:
  /// nullptr: the engine cannot run the case.
  const std::vector<Violation>* violations(const Case& c, const Fault& fault) {
    if (!case_ || !(*case_ == c)) {
      case_ = c;
      by_fault_.clear();
    }
    const auto [at, is_new] = by_fault_.try_emplace(&fault);
    if (is_new) at->second = judge(fault);
    return at->second ? &*at->second : nullptr;
  }

 private:
  std::optional<std::vector<Violation>> judge(const Fault& fault) {
    Case c = *case_;
    c.options.clear();
    const bool is_foreign = std::any_of(c.layers.begin(), c.layers.end(),
                                        [](const LayerSpec& l) { return l.layer != nullptr; });
    if (is_foreign) return std::nullopt;
    try {
      EngineSubject wrong(fault.make);
      return judge_case(c, wrong, workspace_).violations;
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }

  std::optional<Case> case_;
  std::map<const Fault*, std::optional<std::vector<Violation>>> by_fault_;
  Workspace workspace_;
};

/// "step 0, buffer 1 (layer 2 running_var)", without the element.
std::string_view array_of(std::string_view place) {
  return place.substr(0, place.find(", element"));
}

/// The value at the start of a line of a law that compares values: "0.5 (0x3f000000)", "0.5 within
/// 1e-07", "0.5, in the plain run 0.25".
std::optional<double> number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string_view rest(end);
  const bool is_value = rest.starts_with(" (0x") || rest.starts_with(" within ") ||
                        rest.starts_with(", in the plain run ");
  return is_value && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::string_view element_of(std::string_view place) {
  return place.substr(0, place.find(" (first"));
}

/// Another rounding may hide a smaller difference, or make it: of so little not even the sign says
/// anything, as of a gradient that would be zero.
constexpr double kRounding = 1.0 / (1 << 16);
/// The largest relative difference that one rounding to bfloat16 makes of two values beside a
/// boundary of it: one of its steps.
constexpr double kCastRounding = 1.0 / (1 << 7);

/// How much of a rounding a value may show. A norm of groups of one element, whose variance is 0,
/// makes gradients of which the exact value is 0, and multiplies the rounding of its sums by
/// 1 / sqrt(epsilon). In its forward it subtracts equal numbers, which does not round.
double rounding_of(const Violation& seen, const Case& c) {
  if (seen.law != "input-gradients" && seen.law != "parameter-gradients") return kRounding;
  const Geometry g = validate(c);
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    const LayerSpec& l = c.layers[i];
    const bool in_rows = l.kind == LayerKind::layer_norm;
    if (!in_rows && l.kind != LayerKind::group_norm) continue;
    const Shape& x = g.outputs[i].front();
    const std::int64_t groups = in_rows ? x.elements() / x[x.rank() - 1] : x[0] * l.groups;
    if (x.elements() == groups) return kRounding / std::sqrt(rounding::kNormEpsilon);
  }
  return kRounding;
}

bool is_rounding(const Violation& seen, const Case& c) {
  const double rounding = rounding_of(seen, c);
  const auto expected = number(seen.expected);
  const auto got = number(seen.got);
  const bool is_little = expected && got && std::abs(*got - *expected) < rounding;
  return is_little || (seen.distance && *seen.distance < kRounding);
}

/// Whether it is about operators that the engine does not have: a layer is one operator there.
bool sees_more(const Violation& seen) { return seen.law == "recomputed-values"; }

/// Whether the engine never recomputes a segment that is differentiated, because its layers save
/// nothing, where others may save something: rotary saves tables of angles in PyTorch.
bool is_never_recomputed(const Case& c) {
  const Forecast f = forecast(c, validate(c));
  const std::vector<SegmentSpec> segments = segments_of(c);
  return std::any_of(segments.begin(), segments.end(), [&](const SegmentSpec& s) {
    const auto first = f.executions.begin();
    const std::vector<bool>& flags = f.grad_flags.at(static_cast<std::size_t>(s.end) - 1);
    return s.choice.variant == Variant::non_reentrant &&
           std::find(flags.begin(), flags.end(), true) != flags.end() &&
           std::all_of(first + s.begin, first + s.end, [](int runs) { return runs < 2; });
  });
}

/// Whether a subject may run other parts of the case than the engine, or with other masks: early
/// stop ends a recomputation between the operators of a layer, which is one operator in the engine,
/// a recomputation that the engine refuses, because it was tampered with, may go on elsewhere,
/// nested segments run as often as a variant says, and a segment that saves nothing is left alone.
bool runs_differently(const Case& c, const FeatureSet& features) {
  return features.contains(Feature::early_stop) || features.contains(Feature::injected_failure) ||
         features.contains(Feature::nested_2) || is_never_recomputed(c) ||
         std::any_of(c.layers.begin(), c.layers.end(),
                     [](const LayerSpec& l) { return layer_of(l).draws(l); });
}

/// The numbers in the place of an array: those of its step, its microbatch and itself.
std::vector<int> numbers_of(std::string_view place) {
  std::vector<int> numbers;
  bool is_in_number = false;
  for (const char c : array_of(place)) {
    const bool is_digit = c >= '0' && c <= '9';
    if (is_digit && !is_in_number) numbers.push_back(0);
    if (is_digit) numbers.back() = numbers.back() * 10 + (c - '0');
    is_in_number = is_digit;
  }
  return numbers;
}

/// Whether the engine with the fault does the same, as far as both tell. Both violate one law.
/// Where values are cast, rounding may hide the first array that differs, and a later one comes
/// first; it may hide it in the engine, too, if it differs by no more than a step.
bool is_like(const Violation& seen, const Violation& model, bool differently, bool casts) {
  const auto expected = number(seen.expected);
  const auto got = number(seen.got);
  const auto plain = number(model.expected);
  const auto wrong = number(model.got);
  if (!expected || !got || !plain || !wrong) return true;
  if (differently) return true;
  if (array_of(seen.place) != array_of(model.place)) {
    const bool is_step = seen.distance && *seen.distance <= kCastRounding;
    return casts && (is_step || numbers_of(seen.place) > numbers_of(model.place));
  }
  if (element_of(seen.place) != element_of(model.place)) return true;
  if (std::abs(*got - *expected) < kRounding) return true;
  const bool same_plain_run = std::abs(*plain - *expected) <= std::abs(*got - *expected) / 64;
  return !same_plain_run || (*got - *expected) * (*wrong - *plain) > 0;
}

}  // namespace

bool is_like_fault(const Violation& violation, const Case& c, const FeatureSet& features,
                   const Fault& fault) {
  thread_local Model model;
  const std::vector<Violation>* violations = model.violations(c, fault);
  if (violations == nullptr || is_rounding(violation, c) || sees_more(violation)) return true;
  // A run that failed says nothing about other laws.
  if (!violations->empty() && find_law(violations->front().law)->judges_failures &&
      !find_law(violation.law)->judges_failures) {
    return true;
  }
  const auto same = std::find_if(violations->begin(), violations->end(),
                                 [&](const Violation& v) { return v.law == violation.law; });
  const bool casts = c.protocol.autocast != AutocastSpan::off;
  if (same == violations->end()) {
    return runs_differently(c, features) || (casts && !violations->empty() && violation.distance &&
                                             *violation.distance <= kCastRounding);
  }
  return is_like(violation, *same, runs_differently(c, features), casts);
}

}  // namespace rematch
