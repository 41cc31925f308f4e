#pragma once

#include <string_view>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/subjects/record.h"

namespace rematch {

struct LayerAgreement;

/// How a case is to be run.
struct RunRequest {
  /// false: the plan is ignored and every layer runs plain.
  bool checkpointed = false;
  /// Layers whose parameters take part as constants (detached). The reference run of a model
  /// whose first blocks the reentrant variant freezes is the plain run with those blocks detached.
  std::vector<int> detached_layers;
  bool timeline = false;
  /// Not 0: run only the forwards of the first step, with every parameter and input that requires
  /// grad moved by this much along its direction (properties/subjects/direction.h), and record the
  /// losses. Asked of subjects that displace() only.
  double displacement = 0;
};

/// An implementation under test. Implement run() for your own framework, link rematch::properties
/// and judge it with judge() (properties/laws/law.h).
class Subject {
 public:
  virtual ~Subject() = default;
  virtual std::string_view name() const = 0;
  /// Whether run() understands RunRequest::displacement; the law of derivatives needs it.
  virtual bool displaces() const { return false; }
  /// Whether run() records Record::live. A subject that cannot know what is live when is not judged
  /// by the laws that read it.
  virtual bool observes_events() const { return true; }
  /// Whether it runs on a device of its own, where the order of work may not be fixed by the code
  /// alone: its runs are then repeated, and its layers compared with the host's.
  virtual bool on_device() const { return false; }
  /// Asked of subjects on_device() only.
  virtual std::vector<LayerAgreement> compare_layers(const Case& c, const Geometry& geometry);
  /// Runs the case from scratch and overwrites `record`. Must be deterministic. An error of the
  /// implementation under test goes into record.error; it must not throw for a valid case.
  /// `geometry` is validate(c). Different threads use different Subject objects.
  virtual void run(const Case& c, const Geometry& geometry, const RunRequest& request,
                   Record& record) = 0;
};

}  // namespace rematch
