#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "properties/forecast/graph.h"

namespace rematch {

/// A symbolic run of a case's protocol: its steps, forwards, losses, backwards and optimizer on a
/// SymbolicGraph. Two steps at most: all later ones are like the second.
class SymbolicProtocol final : private SymbolicGraph::Listener {
 public:
  /// Takes a case; all must outlive the runs.
  void bind(const Case& c, const Geometry& geometry, const Facts& facts);
  /// Runs under these segments, with parameters of layers in `detached` as constants. `measured`:
  /// of the run in which the facts were measured, if they were.
  void run(std::span<const SegmentSpec> segments, std::span<const int> detached, bool offload,
           Trace& trace, const Trace* measured = nullptr);

 private:
  /// A forward whose backward is to come. The graphs of several lie on each other, the last one on
  /// top.
  struct Forward {
    /// Leaves of the graph.
    std::vector<SymbolicValue> inputs;
    /// Those that require grad.
    std::vector<SymbolicValue> losses;
    SymbolicGraph::Mark graph;
    std::vector<int> executions;
  };

  void run_step(int step);
  void run_forward(int microbatch);
  void run_loss(Forward& forward, std::size_t output, std::vector<Block>& held);
  void run_backward(int microbatch);
  void step_optimizer();
  void note_gradients();
  void want(int part, const std::vector<SymbolicValue>& inputs);
  void emit(Event event) { on_event(event, -1, 0, 0, false); }
  void on_event(Event event, int layer, int execution, std::int64_t entered, bool stops) override;
  bool is_first(int microbatch) const { return step_ == 0 && microbatch == 0; }
  Forward& forward(int microbatch) { return forwards_[static_cast<std::size_t>(microbatch)]; }

  const Case* case_ = nullptr;
  const Geometry* geometry_ = nullptr;
  bool offload_ = false;
  Trace* trace_ = nullptr;
  int step_ = 0;
  int microbatch_ = 0;
  std::int64_t item_ = 0;

  // The graph goes before the heaps that it counts on.
  SymbolicHeap heap_;
  SymbolicHeap host_;
  SymbolicGraph graph_;
  Block model_;
  /// The optimizer's state, by parameter.
  std::vector<Block> state_;
  std::vector<Forward> forwards_;
  /// Leaves that a partial backward is for; empty: all.
  std::vector<bool> wanted_;
};

}  // namespace rematch
