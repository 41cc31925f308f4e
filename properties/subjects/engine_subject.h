#pragma once

#include <memory>

#include "engine/cuda/runtime/device.h"
#include "properties/record/subject.h"
#include "properties/subjects/engine_parts.h"

namespace rematch {

/// Memory limit of a run. A case that needs more ends in an error instead of exhausting the
/// machine. Generated cases stay below a thousandth of it.
inline constexpr std::int64_t kMaxRunBytes = std::int64_t{4} << 30;

/// By kind, as Subject::device_work() names them.
DeviceWork work_of(const cuda::Operations& operations);

/// The reference engine as a subject. It has its own ambient state and its own ledger.
class EngineSubject final : public Subject {
 public:
  /// Throws cuda::DeviceError if there is no such device.
  explicit EngineSubject(EngineParts parts = {}, Device device = Device::cpu);
  /// Creates new parts for each run, so that no run sees the state of another.
  explicit EngineSubject(EngineParts (*make_parts)(), Device device = Device::cpu);
  /// The engine on the host with another checkpoint().
  explicit EngineSubject(CheckpointFunction checkpoint);
  ~EngineSubject() override;
  const Declaration& declares() const override { return declaration_; }
  Device device() const { return ledger_->device(); }
  bool on_device() const { return device() != Device::cpu; }
  bool facts(const Case& c, const Geometry& geometry, const Record& plain,
             Facts& facts) const override;
  DeviceWork device_work() const override;
  void run(const Case& c, const Geometry& geometry, const RunRequest& request,
           Record& record) override;

 private:
  void run_here(const Case& c, const Geometry& geometry, const RunRequest& request, Record& record);

  EngineParts (*make_parts_)() = nullptr;
  EngineParts parts_;
  std::shared_ptr<Ledger> ledger_;
  Declaration declaration_;
  /// For the comparison of layers.
  std::shared_ptr<Ledger> host_ledger_;
  /// For what a plan offloads.
  std::shared_ptr<Ledger> offload_ledger_;
  cuda::Operations asked_;
};

}  // namespace rematch
