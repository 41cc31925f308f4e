#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "properties/forecast/graph_layers.h"

namespace rematch {

/// The graph of a symbolic run: layers, both variants of checkpointing, saved tensors, and reverse
/// accumulation, by the published rules of PyTorch's autograd and of its two checkpoints.
///
/// This is abstract interpretation of the case: control flow is followed step by step, as an eager
/// framework would run it, but of tensors only their bytes are kept, of numbers only the formulas
/// of gradients. It shares no code with any engine. The subject's facts tell what single layers
/// save, draw and compute (for the reference engine these include the workspace of its own CPU
/// convolutions, which are asked for it).
///
/// Its assumptions about memory are listed in properties/forecast/README.md. Order of a
/// backward: nodes run newest first. Every layer reads the layer before it, so all nodes lie on one
/// chain and this order is the only possible one; a leaf's shares are summed in the order of their
/// arrival, and accumulated once the last one is there.
///
/// Each part of it is a class of its own on the one before: nodes, backwards, layers, and here the
/// two checkpoints.
class SymbolicGraph final : public GraphLayers {
 public:
  /// Where saved tensors go.
  enum class Saving : std::uint8_t { kept, offloaded };

  /// Begins a run on these heaps, whose counts go to `trace` and events to `listener`. Parameters
  /// of layers in `detached` take part as constants. `measured`: the run in which the facts were
  /// measured, if they were.
  void begin(std::span<const SegmentSpec> segments, std::span<const int> detached,
             SymbolicHeap& heap, SymbolicHeap& host, Trace& trace, const Trace* measured,
             Listener& listener);
  /// Lets go of all that the run held.
  void end();

  /// The model on `inputs`, saving as said. Its values stay until drop_outputs(). Counts of layers
  /// go to `executions`, one for each layer; `first`: the trace notes what the first forward shows.
  void run_model(const std::vector<SymbolicValue>& inputs, Saving saving,
                 std::vector<int>& executions, bool first);
  const SymbolicValue& output(std::size_t i) const { return stack_[i]; }
  std::size_t outputs() const { return stack_.size(); }
  void drop_outputs() { stack_.clear(); }

 private:
  void checkpoint(const SegmentSpec& segment, bool records, std::size_t window) override;
  void checkpoint_reentrant(const SegmentSpec& segment, std::size_t window);
  void checkpoint_non_reentrant(const SegmentSpec& segment, std::size_t window);
  void recompute(int frame) override;
  void differentiate_segment(const Node& node, std::size_t out, std::size_t in, int depth) override;
  void run_again(const SegmentSpec& segment, int log, std::size_t window, const Hooks& hooks);
  std::size_t copy_window(std::size_t window);

  std::span<const SegmentSpec> segments_;
  int logs_ = 0;
};

}  // namespace rematch
