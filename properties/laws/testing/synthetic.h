#pragma once

#include "properties/laws/law.h"

namespace rematch::testing {

/// A case with everything that laws look at: parameters, a buffer, two checkpointed segments, a
/// dropout in one of them and in the stored one, three steps of two microbatches, a reevaluation.
Case synthetic_case();

/// Two records as a correct subject would hand them in, made from the forecast, with made-up
/// values that are equal in both.
struct Synthetic {
  explicit Synthetic(Case made);
  Synthetic(const Synthetic&) = delete;
  Synthetic& operator=(const Synthetic&) = delete;

  Evidence evidence() const {
    Evidence e{c, geometry, forecast, observed, plain, checkpointed};
    e.crash = crash;
    return e;
  }
  /// By one law.
  std::optional<Violation> judge(std::string_view law) const;
  Verdict verdict(std::string_view law) const;

  Case c;
  Geometry geometry;
  Forecast forecast;
  Record plain;
  Record checkpointed;
  Observables observed = Observables::all();
  std::optional<std::string> crash;
};

/// Laws that read lists entry by entry: each wrong entry of a random record is seen to break them.
inline constexpr std::string_view kReadEntryByEntry[] = {"requires-grad-map",
                                                         "dropout-masks",
                                                         "recomputed-values",
                                                         "outputs",
                                                         "losses",
                                                         "rng-after-forward",
                                                         "absent-gradients",
                                                         "input-gradients",
                                                         "parameter-gradients",
                                                         "rng-after-step",
                                                         "parameters-after-step",
                                                         "executions",
                                                         "hooks",
                                                         "saved-bytes",
                                                         "bytes-after-backward",
                                                         "live-bytes",
                                                         "peak-bytes"};

/// The first observation of this quantity.
Observation& observation(Record& record, Quantity quantity, int index = 0);

/// Replaces element `element` of a float32 observation.
void put(Record& record, const Observation& o, int element, float value);

}  // namespace rematch::testing
