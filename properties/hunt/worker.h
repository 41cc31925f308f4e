#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "properties/hunt/finding.h"
#include "properties/hunt/tally.h"
#include "properties/layers/scope.h"
#include "properties/record/subject.h"

namespace rematch {

struct HuntOptions;

/// Cases begin .. end - 1 of a hunt.
struct CaseRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// A worker's process lost the device, or ended, or gave no answer in time. Whether one of these
/// cases is the reason is to be found out.
class WorkerLost : public std::runtime_error {
 public:
  WorkerLost(const std::string& what, CaseRange cases_in_flight)
      : std::runtime_error(what), in_flight(cases_in_flight) {}
  CaseRange in_flight;
};

/// Judges cases of a hunt, one after another. Its answers are a function of the hunt's options and
/// of the cases alone.
class Worker {
 public:
  Worker() = default;
  virtual ~Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Scope and versions of the subject.
  virtual const Scope& scope() const = 0;
  virtual const Versions& versions() const = 0;
  /// Judges cases of the hunt: unless it keeps going, up to the first that violates a law. It asks
  /// `go_on` before each. Throws WorkerLost, and what ends a hunt; `tally` then has the cases
  /// before.
  virtual void judge(CaseRange cases, const std::function<bool()>& go_on, Tally& tally) = 0;
  /// Judges a case as if it had this number in the hunt.
  virtual Tally judge(std::uint64_t index, const Case& c) = 0;
  virtual Finding shrink(const ViolatingCase& violating) = 0;
};

/// A worker in the calling thread.
std::unique_ptr<Worker> local_worker(const HuntOptions& options);

}  // namespace rematch
