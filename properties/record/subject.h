#pragma once

#include <stdexcept>
#include <string_view>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/features.h"
#include "properties/case/geometry.h"
#include "properties/layers/facts.h"
#include "properties/record/observable.h"
#include "properties/record/record.h"

namespace rematch {

/// How a case is to be run.
struct RunRequest {
  /// false: the plan is ignored and every layer runs plain.
  bool checkpointed = false;
  /// Layers whose parameters take part as constants (detached). The reference run of a model
  /// whose first blocks the reentrant variant freezes is the plain run with those blocks detached.
  std::vector<int> detached_layers;
  bool timeline = false;
  /// Record::values is filled in plain runs, too. Asked of subjects that observe saved_tensors
  /// only.
  bool layer_values = false;
  /// Not 0: run only the forwards of the first step, with every parameter and input that requires
  /// grad moved by this much along its direction (properties/record/direction.h), and record the
  /// losses. Asked of subjects that observe displacement only.
  double displacement = 0;
  /// Run no model: run every layer by itself, on the subject's device and on the host, and fill
  /// Record::agreements. Asked of subjects that observe host_agreement only.
  bool compare_layers = false;
};

/// Thrown by run() for a case that cannot be run here, too large a one, say: there is nothing to
/// judge. Hunts count such cases.
class NotJudged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown by run() when nothing that the subject says can be relied on: ends the hunt.
class SubjectBroken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An implementation under test. Implement run() for your own framework, say what it implements and
/// observes, link rematch::properties, and judge it: one case by gather() and judge()
/// (properties/hunt/gather.h), random ones by hunt() (properties/hunt/hunt.h).
class Subject {
 public:
  virtual ~Subject() = default;
  virtual std::string_view name() const = 0;
  /// Features that cases may have. Others are neither generated nor met while shrinking.
  virtual FeatureSet implements() const { return FeatureSet::all(); }
  /// What run() records. Laws that read anything else are not judged.
  virtual Observables observes() const {
    return Observables::all().without(
        {Observable::saved_tensors, Observable::displacement, Observable::host_agreement});
  }
  /// Whether runs of one case may differ, because the code alone does not fix the order of the work
  /// (a device, say): the checkpointed run is then repeated and compared.
  virtual bool may_vary() const { return false; }
  /// Says in `facts` what each layer saves, draws and computes here. Asked after the plain run, of
  /// which `plain` is the record, so that it may be measured there (forecast/measured_facts.h).
  /// false: the reference engine's facts on the host are true of this subject as well.
  virtual bool facts(const Case& /*c*/, const Geometry& /*geometry*/, const Record& /*plain*/,
                     Facts& /*facts*/) const {
    return false;
  }
  /// Runs the case from scratch and overwrites `record`. Must be deterministic, unless may_vary().
  /// An error of the implementation under test goes into record.error; an exception other than the
  /// two above counts as a crash, and violates the law `survives`. `geometry` is validate(c).
  /// Different threads use different Subject objects.
  virtual void run(const Case& c, const Geometry& geometry, const RunRequest& request,
                   Record& record) = 0;
};

}  // namespace rematch
