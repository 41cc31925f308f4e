#include "properties/rounding/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "properties/rounding/analysis.h"

namespace rematch {

std::vector<double> elements_of(const Record& record, const Observation& o) {
  const std::size_t item = size_of(o.dtype);
  std::vector<double> elements;
  elements.reserve(o.bytes / item);
  for (std::size_t at = 0; at < o.bytes; at += item) {
    elements.push_back(element_of(o.dtype, record.bytes_of(o).data() + at));
  }
  return elements;
}

std::optional<Misfit> misfit(const Reference& reference, std::size_t number, const Record& run,
                             const Observation& got, std::span<const double> plain) {
  const std::vector<double> right = elements_of(reference.run, reference.run.observations[number]);
  const std::vector<double> values = elements_of(run, got);
  for (std::size_t i = 0; i < right.size(); ++i) {
    double bound = reference.bounds[number][i];
    if (!plain.empty()) bound += std::fabs(plain[i] - right[i]);
    if (!std::isfinite(bound) || !std::isfinite(right[i])) continue;
    // Not >, so that no number does not fit.
    if (!(std::fabs(values[i] - right[i]) <= bound)) return Misfit{i, right[i], bound, values[i]};
  }
  return std::nullopt;
}

bool run_reference(const Case& c, const Geometry& geometry, const std::vector<int>& detached,
                   Subject& engine, Reference& reference) {
  const auto analysed = rounding::analyse(c, geometry, detached);
  if (!analysed) return false;
  Case wide = c;
  wide.dtype = DType::float64;
  wide.protocol.autocast = AutocastSpan::off;
  RunRequest request;
  request.detached_layers = detached;
  request.numbers_of = &c;
  engine.run(wide, geometry, request, reference.run);
  if (reference.run.error) return false;
  reference.bounds.clear();
  for (const Observation& o : reference.run.observations) {
    auto& bounds = reference.bounds.emplace_back(static_cast<std::size_t>(o.shape.elements()),
                                                 std::numeric_limits<double>::infinity());
    const auto found = std::find_if(analysed->begin(), analysed->end(), [&](const auto& a) {
      return a.quantity == o.quantity && a.step == o.step && a.microbatch == o.microbatch &&
             a.index == o.index;
    });
    if (!o.present || found == analysed->end() || found->numbers.size() != bounds.size()) continue;
    std::transform(found->numbers.begin(), found->numbers.end(), bounds.begin(),
                   [](const rounding::Bounded& b) { return b.error; });
  }
  return true;
}

}  // namespace rematch
