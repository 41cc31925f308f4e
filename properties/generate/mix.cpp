#include "properties/generate/mix.h"

#include <stdexcept>
#include <string>

#include "properties/case/geometry.h"
#include "properties/case/rules.h"
#include "properties/generate/parts.h"
#include "properties/layers/draw_source.h"

namespace rematch {

std::string_view to_string(Mix mix) {
  switch (mix) {
    case Mix::standard:
      return "standard";
    case Mix::wide:
      return "wide";
  }
  return "?";
}

namespace {

/// Percents of the wide mix: often enough for every hunt, rarely enough to cost little.
constexpr double kTail = 0.5;
constexpr double kSecondBlock = 0.8;
constexpr double kManyDimensions = 1.6;
constexpr double kLargeCheck = 0.12;

/// A case of any mix that keeps to the sources' features as far as its parts know them. `tail` and
/// `rare` decide of rare cases, so that all others are what they are without them.
Case draw_case(Mix mix, DrawSource& draw, DrawSource& tail, DrawSource& rare) {
  Case c;
  c.seed = draw.word();
  if (mix == Mix::standard) {
    draw_standard(draw, c);
    return c;
  }
  if (draw.chance(12)) c.seed = c.seed << 32 | draw.word();
  draw_wide_protocol(draw, c);
  if (tail.chance(kTail, Feature::more_than_a_few)) {
    draw_wide_tail(tail, c);
    return c;
  }
  const bool changes = rare.may(Feature::operand_changed) && rare.may(Feature::injected_failure);
  if (rare.chance(kLargeCheck, Feature::large_values_check) && changes) {
    draw_large_check(rare, c);
    return c;
  }
  const bool many = rare.chance(kManyDimensions, Feature::many_dimensions);
  draw_wide_model(draw, c, tail.chance(kSecondBlock, Feature::second_block) ? &tail : nullptr,
                  many ? &rare : nullptr);
  draw_wide_plan(draw, c);
  draw_in_place(draw, c);
  draw_failure(draw, c);
  if (many && changes && rare.chance(80)) draw_failure(rare, c, FailureKind::shape_changed);
  draw_partial(draw, c);
  draw_losses(draw, c);
  draw_structures(draw, c);
  draw_without_gradient(draw, c);
  return c;
}

/// Exchanges what vary() takes over, and with `plan` the plan and what depends on it.
Case with_others(const Case& first, bool plan, DrawSource& draw) {
  Case c = first;
  Case steps;
  steps.seed = first.seed;
  draw_wide_protocol(draw, steps);
  vary(c, steps);
  if (!plan) return c;
  c.plan = {};
  c.protocol.failure = {};
  c.protocol.partial = false;
  c.protocol.auxiliary_losses = false;
  for (LayerSpec& layer : c.layers) layer.in_place = false;
  draw_wide_plan(draw, c);
  draw_in_place(draw, c);
  draw_failure(draw, c);
  draw_partial(draw, c);
  draw_losses(draw, c);
  draw_structures(draw, c);
  if (!loss_requires_grad(c)) leave_out_gradients(c);
  return c;
}

/// The first case of those with shape number `index`.
Case draw_shape(Mix mix, std::uint64_t seed, std::uint64_t index, const Scope& scope) {
  FeatureSet found;
  // The parts do most of it: what is left is drawn again.
  constexpr std::uint64_t kAttempts = 1000;
  constexpr std::uint64_t kRare = std::uint64_t{1} << 63U;
  for (std::uint64_t attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint64_t stream = index ^ attempt << 48;
    DrawSource draw(seed, stream, scope);
    DrawSource tail(~seed, stream, scope);
    DrawSource rare(~seed, stream | kRare, scope);
    Case c = draw_case(mix, draw, tail, rare);
    if (scope.allows_all()) return c;
    found = features_of(c, validate(c));
    if (scope.features.contains_all(found)) return c;
  }
  std::string missing;
  found.without(scope.features).for_each([&](Feature f) {
    missing += " " + std::string(to_string(f));
  });
  throw std::invalid_argument("[generate] no case of the " + std::string(to_string(mix)) +
                              " mix does without:" + missing);
}

/// Case number `index` without options.
Case draw_case_of(Mix mix, std::uint64_t seed, std::uint64_t index, const Scope& scope) {
  const Case first = draw_shape(mix, seed, index / scope.cases_per_shape, scope);
  if (index % scope.cases_per_shape == 0) return first;
  // No shape draws from this stream.
  constexpr std::uint64_t kOthers = std::uint64_t{1} << 63U;
  DrawSource draw(seed, index | kOthers, scope);
  Case c = first;
  c.seed = draw.word();
  // Cases of the standard mix or of the tail are not drawn here.
  const bool tail = features_of(first, validate(first)).contains(Feature::more_than_a_few);
  if (mix == Mix::standard || tail) return c;
  Case other = with_others(c, scope.new_plans, draw);
  return scope.features.contains_all(features_of(other, validate(other))) ? other : c;
}

/// Draws from a stream where nothing else is drawn: the rest of a case is the same whatever options
/// there are.
void draw_options(std::uint64_t seed, std::uint64_t index, const Scope& scope, Case& c) {
  constexpr std::uint64_t kOptions = std::uint64_t{1} << 62U;
  DrawSource draw(seed, index | kOptions, scope);
  for (const OptionSpec& spec : scope.options) {
    const bool other = draw.chance(100 * spec.share);
    const auto others = static_cast<std::uint32_t>(spec.values.size() - 1);
    const std::size_t at = 1 + draw.below(others);
    if (other) c.options[spec.name] = spec.values[at];
  }
}

}  // namespace

void vary(Case& c, const Case& from) {
  const auto take = [](const auto& field, auto& value, const auto& other) {
    if (field.varies) value = other;
  };
  for_each_field(c, from, take);
  for_each_field(c.protocol, from.protocol, take);
  // The dtype stays.
  if (!takes_loss_scale(c)) c.protocol.loss_scale = 0;
}

Case generate_case(Mix mix, std::uint64_t seed, std::uint64_t index, const Scope& scope) {
  Case c = draw_case_of(mix, seed, index, scope);
  draw_options(seed, index, scope, c);
  return c;
}

}  // namespace rematch
