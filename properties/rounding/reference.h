#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/record/record.h"
#include "properties/record/subject.h"

namespace rematch {

/// The plain run of the reference engine in float64, on the numbers that the case has in its own
/// dtype.
struct Reference {
  Record run;
  /// bounds[i]: for each element of run.observations[i], how far from it that of a correct
  /// implementation may be (bounds/bounds.h); infinite where that is not known.
  std::vector<std::vector<double>> bounds;
};

/// An element that is further from the reference than it may be.
struct Misfit {
  std::size_t element = 0;
  double expected = 0;
  double bound = 0;
  double got = 0;
};

/// The first such element of an array that was observed in `run`. `number`: of the reference's
/// observation. Each element may be as far from the reference as its bound says, and by as much
/// further as the same element of `plain` is. Elements without a bound fit.
std::optional<Misfit> misfit(const Reference& reference, std::size_t number, const Record& run,
                             const Observation& got, std::span<const double> plain = {});

/// Elements of an observation.
std::vector<double> elements_of(const Record& record, const Observation& o);

/// Fills in `reference` by running `engine`, the reference engine on the host. false: what the case
/// computes is not determined by its data, or is too large to be analysed.
bool run_reference(const Case& c, const Geometry& geometry, const std::vector<int>& detached,
                   Subject& engine, Reference& reference);

}  // namespace rematch
