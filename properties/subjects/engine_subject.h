#pragma once

#include <memory>

#include "engine/checkpoint/mechanics.h"
#include "properties/subjects/subject.h"

namespace rematch {

/// The reference engine. Runs in an ambient state and with a ledger of its own.
class EngineSubject final : public Subject {
 public:
  /// `mechanics` (nullptr: the correct ones) must outlive the subject. Throws cuda::DeviceError
  /// without one.
  explicit EngineSubject(const Mechanics* mechanics = nullptr, Device device = Device::cpu);
  ~EngineSubject() override;
  std::string_view name() const override { return "engine"; }
  Device device() const { return ledger_->device(); }
  bool on_device() const override { return device() != Device::cpu; }
  std::vector<LayerAgreement> compare_layers(const Case& c, const Geometry& geometry) override;
  bool displaces() const override { return true; }
  void run(const Case& c, const Geometry& geometry, const RunRequest& request,
           Record& record) override;

 private:
  const Mechanics* mechanics_;
  std::shared_ptr<Ledger> ledger_;
  /// For the comparison of layers.
  std::shared_ptr<Ledger> host_ledger_;
};

}  // namespace rematch
