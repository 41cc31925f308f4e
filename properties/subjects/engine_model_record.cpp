// Events of an engine's run, on their way into the record.
#include <algorithm>

#include "engine/autograd/node.h"
#include "engine/checkpoint/tensor_hash.h"
#include "properties/subjects/engine_model.h"

namespace rematch {

void EngineModel::on_compute(std::string_view /*op*/) {
  if (current_forward_ == nullptr) return;
  ++current_forward_->computations[static_cast<std::size_t>(current_layer_)];
}

void EngineModel::note_value(std::string_view op, bool saved, int index, const Tensor& t) {
  // To compare, a value is of use only where the layer runs again.
  const bool wanted = request_.checkpointed || request_.layer_values;
  if (!wanted || current_forward_->step == kNoStep) return;
  const auto layer = static_cast<std::size_t>(current_layer_);
  const Storage& storage = *t.storage();
  const bool counts = storage.temporary();
  record_.values.push_back({current_forward_->step, current_forward_->microbatch, current_layer_,
                            current_forward_->executions[layer] - 1, saved, index, std::string(op),
                            0, counts ? storage.id() : 0, counts ? storage.bytes() : 0});
  read_hash(t, [this, i = record_.values.size() - 1](std::uint64_t hash) {
    record_.values[i].hash = hash;
  });
}

void EngineModel::on_results(std::string_view op, std::span<const Tensor> results) {
  if (current_forward_ == nullptr) return;
  for (const Tensor& t : results) note_value(op, false, results_++, t);
}

void EngineModel::on_save(const Tensor& t) {
  if (current_forward_ != nullptr) note_value("", true, saves_++, t);
}

void EngineModel::on_draw(const Generator& before, std::int64_t elements,
                          std::span<const std::byte> drawn) {
  if (current_forward_ == nullptr) return;
  note_draw(before, elements);
  read_draw(record_.draws.size() - 1, drawn);
}

MemoryResource::Reader EngineModel::on_later_draw(const Generator& before, std::int64_t elements) {
  if (current_forward_ == nullptr) return [](std::span<const std::byte>) {};
  note_draw(before, elements);
  return [this, i = record_.draws.size() - 1](std::span<const std::byte> drawn) {
    read_draw(i, drawn);
  };
}

void EngineModel::note_draw(const Generator& before, std::int64_t elements) {
  record_.draws.push_back(
      {current_forward_->step, current_forward_->microbatch, current_layer_,
       current_forward_->executions[static_cast<std::size_t>(current_layer_)] - 1,
       static_cast<int>(before.stream), before.offset, elements, 0});
}

void EngineModel::read_draw(std::size_t i, std::span<const std::byte> drawn) {
  const auto elements = static_cast<std::size_t>(record_.draws[i].elements);
  const std::size_t item = elements > 0 ? drawn.size() / elements : 0;
  if (item > 1) {
    drawn_.assign(drawn.begin(), drawn.end());
    canonical_nans(drawn_, item);
    drawn = drawn_;
  }
  record_.draws[i].hash = hash_bytes(drawn);
}

void EngineModel::on_gradients(const Node& node) {
  if (differentiated_ == nullptr) return;
  if (node.edges.empty()) {
    note_event(Event::gradient, *differentiated_);
    return;
  }
  const auto maker = std::lower_bound(
      makers_.begin(), makers_.end(), node.sequence(),
      [](const auto& entry, std::uint64_t sequence) { return entry.first < sequence; });
  const bool known = maker != makers_.end() && maker->first == node.sequence();
  note_event(Event::node, *differentiated_, known ? maker->second : -1);
}

void EngineModel::begin_step() {
  makers_.clear();
  record_.peak_bytes = std::max(record_.peak_bytes, ambient().ledger->peak());
  ambient().ledger->reset_peak();
}

void EngineModel::note_event(Event event, const ForwardRun& forward, int layer, int execution,
                             std::int64_t entered) {
  Ledger& ledger = *ambient().ledger;
  record_.live.push_back({event, forward.step, forward.microbatch, layer, execution, entered,
                          ledger.live(), ledger.peak(), host_ != nullptr ? host_->live() : 0});
  record_.peak_bytes = std::max(record_.peak_bytes, ledger.peak());
  ledger.reset_peak();
}

void EngineModel::enter_phase(Moment phase) {
  phase_ = phase;
  if (request_.timeline) ambient().ledger->set_label(static_cast<int>(phase) << 16);
}

TimelinePoint EngineModel::point_of(const LedgerEvent& event) {
  return {event.live, event.saved, (event.label & 0xffff) - 1,
          static_cast<Moment>((event.label >> 16) & 0xf), event.label >> 20};
}

}  // namespace rematch
