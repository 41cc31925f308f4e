#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "properties/forecast/graph_backward.h"

namespace rematch {

/// The forwards of layers in a symbolic run, with their casts, their states and what they record.
class GraphLayers : public GraphBackward {
 public:
  /// Autocast scopes, each with a cache of casts of its own if the case has caches.
  void enter_autocast() { cache_ = &scope_cache_; }
  void leave_autocast() {
    scope_cache_.clear();
    cache_ = nullptr;
  }

 protected:
  /// A region whose forward runs, or whose recomputation does.
  struct Reader {
    int log = 0;
    bool replays = false;
  };
  struct CastCache {
    std::vector<Block> values;
    void clear() { values.assign(values.size(), {}); }
  };

  ~GraphLayers() = default;
  /// Runs a segment on the values from `window` on, and puts its outputs there.
  virtual void checkpoint(const SegmentSpec& segment, bool records, std::size_t window) = 0;

  void run_layers(int begin, int end, std::span<const SegmentSpec> segments, bool records,
                  std::size_t window);
  void replace_window(std::size_t window, std::size_t by);

  const Trace* measured_ = nullptr;
  /// Stands for every parameter.
  Block constant_;
  /// Windows of live values, innermost last: one per call that holds some.
  std::vector<SymbolicValue> stack_;
  /// Innermost last.
  std::vector<Reader> readers_;
  /// In a recomputation without the random state of its forward.
  bool afresh_ = false;
  int policy_frame_ = -1;
  bool recalls_ = false;
  CastCache scope_cache_;
  CastCache recomputation_cache_;
  CastCache* cache_ = nullptr;

 private:
  void run_layer(int layer, bool records, std::size_t window);
  void apply(int layer, bool records, std::size_t window, std::size_t made);
  void apply_view(int layer, bool records, std::size_t made);
  SymbolicValue cast_operand(int layer, int position, bool records, std::size_t window);
  SymbolicValue cast_parameter(int layer, int position, bool records);
  void compute(int layer, std::size_t results);
  void make(int layer, std::size_t results);
  Block read_state(int layer);
  void record(int layer, std::size_t first_edge, std::size_t operands, std::size_t results,
              std::size_t made);
  void note_pattern(int layer, Edges edges);
  bool recall(int layer);
  void keep(int layer, std::size_t results);
  void note_flags(int layer, std::size_t made);
  SymbolicEdge parameter_edge(int layer, int position, bool records) const;

  /// Stacks for layers that run, innermost last: operands and parameters after their casts,
  /// outputs, and edges to be.
  std::vector<SymbolicValue> operands_;
  std::vector<SymbolicValue> made_;
  std::vector<SymbolicEdge> wanted_;
};

}  // namespace rematch
