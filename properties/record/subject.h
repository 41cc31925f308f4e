#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/layers/facts.h"
#include "properties/record/declaration.h"
#include "properties/record/record.h"

namespace rematch {

/// How to run a case.
struct RunRequest {
  /// false: the plan is ignored and every layer runs plain.
  bool checkpointed = false;
  /// Layers whose parameters are detached, that is, used as constants. If the reentrant variant
  /// freezes the first blocks of a model, its reference run is the plain run with those blocks
  /// detached.
  std::vector<int> detached_layers;
  bool timeline = false;
  /// Also fill Record::values in plain runs. Set only for subjects that observe saved_tensors.
  bool layer_values = false;
  /// If not 0: run only the forwards of the first step, with every parameter and input that
  /// requires grad displaced by this amount along its direction (properties/record/direction.h),
  /// and record the losses. Set only for subjects that observe displacement.
  double displacement = 0;
  /// If not nullptr: the parameters, inputs and targets are those of this case, which has another
  /// dtype, converted. Set only for the reference engine.
  const Case* numbers_of = nullptr;
  /// Run where nothing of earlier cases can be left, in a fresh process, say.
  bool fresh = false;
  /// On a device: fill all freed memory at once, which shows every read of it and takes time. On
  /// the host that is always so.
  bool poison_at_once = false;
  /// Do not run the model. Run every layer alone, on the subject's device and on the host, and fill
  /// Record::agreements. Set only for subjects that observe host_agreement.
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

/// Counts of what runs asked of a device: operations by kind ("kernels"), under "waits" how often
/// the host waited for it, and under "slow_convolutions" how many convolutions ran on slow kernels.
using DeviceWork = std::map<std::string, std::int64_t>;

/// An implementation under test. To test your own: implement run() and declares(), and link
/// rematch::properties. judge_case() (properties/hunt/gather.h) judges one case; hunt()
/// (properties/hunt/hunt.h) judges random cases.
class Subject {
 public:
  virtual ~Subject() = default;
  /// The same in every call.
  virtual const Declaration& declares() const = 0;
  /// Whether the case that was run last is to be repeated from a fresh start, which shows state
  /// that leaks from case to case. Asked after its checkpointed run.
  virtual bool wants_fresh_repeat() const { return false; }
  /// Fills in `facts`: what each layer saves, draws and computes in this subject. Called after the
  /// plain run with its record, so that facts can be measured (forecast/measured_facts.h). Returns
  /// false if the facts of the reference engine on the host apply.
  virtual bool facts(const Case& /*c*/, const Geometry& /*geometry*/, const Record& /*plain*/,
                     Facts& /*facts*/) const {
    return false;
  }
  /// The work of all runs so far; empty if the subject does not count.
  virtual DeviceWork device_work() const { return {}; }
  /// A script that shows `finding` (the law, the place, what was expected and what came) in the
  /// bare implementation, for an issue tracker. Throws NotJudged where it cannot write one.
  virtual std::string export_script(const Case& /*c*/, const Geometry& /*geometry*/,
                                    std::string_view /*finding*/) {
    throw NotJudged("subject " + declares().name + " does not write scripts");
  }
  /// Runs the case from scratch and overwrites `record`. Must be deterministic, unless the subject
  /// declares may_vary. An error of the implementation under test goes into record.error; an
  /// exception other than the two above counts as a crash, and violates the law `survives`.
  /// `geometry` is validate(c). Each thread uses its own Subject object.
  virtual void run(const Case& c, const Geometry& geometry, const RunRequest& request,
                   Record& record) = 0;
};

}  // namespace rematch
