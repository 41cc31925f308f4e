#pragma once

#include <map>
#include <string>

#include "properties/layers/scope.h"
#include "properties/record/observable.h"

namespace rematch {

/// Names and versions of what an implementation consists of: "torch", "2.15.0".
using Versions = std::map<std::string, std::string>;

/// Everything that a subject says of itself.
struct Declaration {
  std::string name;
  /// Shown with every finding.
  Versions versions = {};
  /// Cases beyond this scope are neither generated nor reached by shrinking.
  Scope scope = {};
  /// The parts of a record that run() fills in. Laws that read anything else are not judged.
  Observables observes = Observables::all().without(
      {Observable::saved_tensors, Observable::promises, Observable::held_bytes,
       Observable::held_layers, Observable::displacement, Observable::host_agreement,
       Observable::collectives});
  /// Two runs of a case may differ, because the order of the work is not fixed (on a device, for
  /// example). The checkpointed run is then repeated and compared.
  bool may_vary = false;
  /// The harness only talks to this implementation. Nothing is taken on trust: the harness finds
  /// out whether equal runs agree.
  bool foreign = false;
  /// The same numbers may be rounded differently in a plain and a checkpointed run, because a
  /// compiler arranges each for itself. Values are then not compared to the bit, but with the
  /// reference engine. Set only for foreign subjects.
  bool rounds_differently = false;
  /// A segment is a function that is differentiated as a whole, as in frameworks that transform
  /// functions. It is then recomputed whenever its gradient is taken, whatever its layers save, and
  /// gradients of what it takes are added up within it first. So where something is used within a
  /// segment and outside, gradients are the same sums in another order.
  bool whole_segments = false;
  /// Subject::export_script() can write scripts.
  bool exports = false;
  /// Name of a known subject whose profile applies to this one, too: "pytorch"; empty for none.
  std::string profile = {};
};

}  // namespace rematch
