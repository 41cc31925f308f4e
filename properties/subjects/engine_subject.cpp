#include "properties/subjects/engine_subject.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "engine/ambient/ambient_scope.h"
#include "engine/backend/device.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/cuda/runtime/device.h"
#include "engine/memory/ledger.h"
#include "properties/forecast/engine_facts.h"
#include "properties/record/machine.h"
#include "properties/subjects/engine_model.h"
#include "properties/subjects/engine_run.h"
#include "properties/subjects/layer_agreement.h"

namespace rematch {
namespace {

/// Moment at which freed memory is poisoned on a device. Late poison takes less time, and misses
/// what reads a block between its release and the poisoning.
constexpr const char* kPoison = "poison";
constexpr const char* kAtOnce = "at_once";

std::shared_ptr<Ledger> new_ledger(Device device) {
  auto ledger = std::make_shared<Ledger>(memory_of(device));
  // A read after free must not pass.
  ledger->set_poison(true);
  ledger->set_limit(kMaxRunBytes);
  return ledger;
}

Declaration declaration_on(Device device) {
  Declaration d{.name = "engine"};
  d.observes = Observables::all().without({Observable::saved_tensors, Observable::promises,
                                           Observable::held_bytes, Observable::held_layers,
                                           Observable::collectives});
  if (device == Device::cpu) {
    d.observes.erase(Observable::host_agreement);
    return d;
  }
  // All that decides its bits.
  d.versions = {{"device", device_description(device)}};
  d.may_vary = true;
  d.scope.options = {{kPoison, {"late", kAtOnce}, 1.0 / 32}};
  return d;
}

}  // namespace

EngineSubject::EngineSubject(EngineParts parts, Device device)
    : parts_(std::move(parts)), ledger_(new_ledger(device)), declaration_(declaration_on(device)) {}

EngineSubject::EngineSubject(EngineParts (*make_parts)(), Device device)
    : EngineSubject(EngineParts(), device) {
  make_parts_ = make_parts;
}

EngineSubject::EngineSubject(CheckpointFunction checkpoint)
    : EngineSubject(EngineParts{nullptr, std::move(checkpoint)}) {}

EngineSubject::~EngineSubject() = default;

bool EngineSubject::facts(const Case& c, const Geometry& geometry, const Record& /*plain*/,
                          Facts& facts) const {
  engine_facts(c, geometry, !on_device(), facts);
  return true;
}

DeviceWork work_of(const cuda::Operations& o) {
  return {{"kernels", o.kernels},     {"products", o.products},
          {"fills", o.fills},         {"uploads", o.uploads},
          {"downloads", o.downloads}, {"copies", o.copies},
          {"waits", o.waits},         {"slow_convolutions", o.slow_convolutions}};
}

DeviceWork EngineSubject::device_work() const {
  return on_device() ? work_of(asked_) : DeviceWork{};
}

void EngineSubject::run(const Case& c, const Geometry& geometry, const RunRequest& request,
                        Record& record) {
  // The thread's count is that of all its subjects.
  const cuda::Operations before = on_device() ? cuda::operations() : cuda::Operations{};
  run_here(c, geometry, request, record);
  if (on_device()) asked_ += cuda::operations() - before;
}

void EngineSubject::run_here(const Case& c, const Geometry& geometry, const RunRequest& request,
                             Record& record) {
  record.clear();
  // An earlier run may have leaked: count from what is live now.
  if (ledger_->live() != 0) ledger_ = new_ledger(device());
  // Reads of a run that broke off: their readers are gone.
  ledger_->memory().drop_reads();
  // Cases that a person will look at have all of it at once.
  const bool at_once = request.poison_at_once || is_set(c.options, kPoison, kAtOnce);
  ledger_->memory().set_late_poison(!at_once);
  if (request.compare_layers) {
    if (!host_ledger_) host_ledger_ = std::make_shared<Ledger>();
    record.agreements = compare_layers(c, geometry, host_ledger_, ledger_);
    return;
  }
  if (make_parts_ != nullptr) parts_ = make_parts_();
  if (offload_ledger_ && offload_ledger_->live() != 0) offload_ledger_.reset();
  ledger_->reset_peak();
  ledger_->clear_timeline();
  ledger_->record_timeline(request.timeline);
  const AmbientScope scope(ledger_, c.seed);
  const auto fail = [&](const char* kind, const std::exception& e) {
    record.error = RecordedError{kind, e.what()};
  };
  try {
    const bool offload = c.plan.offload && request.checkpointed;
    if (offload && !offload_ledger_) {
      // Kept from run to run, because pinned memory is expensive to allocate.
      offload_ledger_ = std::make_shared<Ledger>(offload_memory_of(device()));
      offload_ledger_->set_poison(true);
    }
    run_protocol(c, geometry, request, parts_, offload ? offload_ledger_ : nullptr, record);
  } catch (const CheckpointError& e) {
    fail("checkpoint_error", e);
  } catch (const OutOfMemory& e) {
    if (is_of_machine(e)) throw;
    fail("out_of_memory", e);
  } catch (const std::invalid_argument& e) {
    fail("invalid_argument", e);
  } catch (const std::exception& e) {
    // Another thread's work may have caused it.
    if (is_of_machine(e)) throw;
    fail("error", e);
  }
  record.peak_bytes = std::max(record.peak_bytes, ledger_->peak());
  record.reserved_bytes = ledger_->reserved();
  const std::int64_t left = ledger_->live() + (offload_ledger_ ? offload_ledger_->live() : 0);
  if (left != 0 && !record.error) {
    record.error = RecordedError{
        "leak", std::to_string(left) + " bytes are still live after the run was torn down"};
  }
  std::unordered_map<const void*, int> blocks;
  int allocations = 0;
  for (const LedgerEvent& event : ledger_->timeline()) {
    TimelinePoint point = EngineModel::point_of(event);
    if (event.block != nullptr) {
      // An address may be given out again.
      if (event.kind == LedgerEvent::Kind::allocate) blocks[event.block] = ++allocations;
      point.block = blocks[event.block];
    }
    record.timeline.push_back(point);
  }
}

}  // namespace rematch
