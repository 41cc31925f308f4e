#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/checkpoint/sequential.h"
#include "engine/memory/ledger.h"
#include "engine/tensor/tensor.h"
#include "properties/record/subject.h"
#include "properties/subjects/engine_parts.h"

namespace rematch {

/// The step number of a forward that belongs to no step.
inline constexpr int kNoStep = -1;

/// One forward of the run: its step and microbatch, and how often each layer was entered for it.
struct ForwardRun {
  int step = 0;
  int microbatch = 0;
  std::vector<int> executions;
  std::vector<int> computations;
  /// Events are recorded.
  bool watched = false;
};

/// The model of a case on the engine: parameters, buffers, and its layers as functions from one
/// boundary's live values to the next one's.
class EngineModel final : public RunObserver {
 public:
  EngineModel(const Case& c, const Geometry& geometry, const RunRequest& request,
              const Mechanics* mechanics, Record& record);

  /// Checkpoints with `function`, which must outlive this, instead of the engine's own.
  void use(const CheckpointFunction& function) { checkpoint_ = &function; }

  /// The whole model under the request's plan. `forward` must outlive the graph.
  Tensors forward(const Tensors& inputs, ForwardRun& forward);
  /// The whole model without checkpointing, in evaluation mode, unrecorded.
  Tensor evaluate(const Tensors& inputs);

  /// Layer `layer` by itself on the values live before it.
  Tensors run_alone(int layer, const Tensors& live);
  /// Replaces every parameter by its magnitudes.
  void take_magnitudes();

  const Tensors& parameters() const { return parameters_; }
  /// The first parameter of a layer that has some.
  const Tensor& weight_of(int layer) const {
    const auto& used = geometry_.layer_parameters[static_cast<std::size_t>(layer)];
    return parameters_[static_cast<std::size_t>(used[0])];
  }
  const Tensors& buffers() const { return buffers_; }

  void on_compute(std::string_view op) override;
  void on_results(std::string_view op, std::span<const Tensor> results) override;
  void on_save(const Tensor& t) override;
  void on_draw(const Generator& before, std::int64_t elements,
               std::span<const std::byte> drawn) override;
  MemoryResource::Reader on_later_draw(const Generator& before, std::int64_t elements) override;
  void on_gradients(const Node& node) override;
  /// Events tell what is live in `host`, too.
  void use_host(const Ledger& host) { host_ = &host; }
  /// No graph is left, and peaks are reset.
  void begin_step();
  /// An event on behalf of `forward`.
  void note_event(Event event, const ForwardRun& forward, int layer = -1, int execution = 0,
                  std::int64_t entered = 0);
  /// A backward of `forward` begins: events from now on are on its behalf.
  void enter_backward(const ForwardRun& forward) { differentiated_ = &forward; }
  void leave_backward() { differentiated_ = nullptr; }
  /// Ledger events from now on belong to this phase and to no layer.
  void enter_phase(Moment phase);
  /// From now on layers throw, or compute something else, as the injected failure says.
  void inject(const InjectedFailure& failure) { failure_ = failure; }
  static TimelinePoint point_of(const LedgerEvent& event);

 private:
  struct LayerCall;
  struct SegmentCall;

  void make_parameters();
  Tensors run_layer(int layer, ForwardRun& forward, const Tensors& live);
  Tensors run_range(int begin, int end, const std::vector<SegmentSpec>& segments,
                    ForwardRun& forward, Tensors values);
  Tensors run_checkpoint(const Function& function, const Tensors& inputs,
                         const CheckpointOptions& options) const;
  Tensors run_sequential(ForwardRun& forward, const Tensors& inputs);
  CheckpointOptions options_for(const CheckpointChoice& choice) const;
  Tensors apply(int layer, const LayerSpec& spec, const Tensors& operands);
  /// The failure changes the operand.
  Tensor apply_to_changed(int layer, const LayerSpec& spec, const Tensor& x);
  Tensor parameter_for(int layer, std::size_t position) const;

  const Case& case_;
  const Geometry& geometry_;
  const RunRequest& request_;
  const Mechanics* mechanics_;
  const CheckpointFunction* checkpoint_ = nullptr;
  Record& record_;
  Tensors parameters_;
  Tensors buffers_;
  std::vector<int> first_buffer_;
  std::vector<bool> detached_;
  bool train_;
  Moment phase_{};
  /// The layer under the injected failure: itself, or in a recomputation another one.
  /// Throws when it must.
  const LayerSpec& injected(int layer, bool forward);

  void note_value(std::string_view op, bool saved, int index, const Tensor& t);

  void note_draw(const Generator& before, std::int64_t elements);
  void read_draw(std::size_t i, std::span<const std::byte> drawn);

  InjectedFailure failure_;
  /// State of the current execution of a layer.
  int results_ = 0;
  int saves_ = 0;
  LayerSpec exchanged_;
  ForwardRun* current_forward_ = nullptr;
  int current_layer_ = -1;
  const ForwardRun* differentiated_ = nullptr;
  const Ledger* host_ = nullptr;
  /// Which layer recorded a node, by the node's sequence; ascending.
  std::vector<std::pair<std::uint64_t, int>> makers_;
  std::vector<std::byte> drawn_;
};

}  // namespace rematch
