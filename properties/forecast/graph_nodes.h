#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/forecast/graph_values.h"
#include "properties/forecast/trace.h"
#include "properties/layers/facts.h"

namespace rematch {

/// The nodes of a symbolic graph and all that they hold: saved tensors, the frames of regions that
/// are to be recomputed, kept results, states that were read. It runs nothing itself.
class GraphNodes {
 public:
  struct Mark {
    std::size_t nodes = 0;
    std::size_t frames = 0;
    std::size_t placeholders = 0;
    std::size_t kept = 0;
    std::size_t kept_blocks = 0;
    std::size_t edges = 0;
    std::size_t saved = 0;
    std::size_t slots = 0;
    std::size_t leaves = 0;
    std::size_t states = 0;
  };
  /// Who is told of events: layers, nodes and gradients, as they happen.
  class Listener {
   public:
    virtual void on_event(Event event, int layer, int execution, std::int64_t entered,
                          bool stops) = 0;

   protected:
    ~Listener() = default;
  };

  /// Takes the facts of a case; all must outlive the runs.
  void bind(const Case& c, const Geometry& geometry, const Facts& facts);

  /// Nodes that a loss is made of. Each returns the value that it makes, or `x` as it was.
  SymbolicValue reshape(const SymbolicValue& x);
  SymbolicValue cast(const SymbolicValue& x, std::int64_t elements, bool to_half, bool records);
  /// A scalar that saves `first` and `second` and whose gradient has `elements`.
  SymbolicValue loss(const SymbolicValue& x, std::int64_t elements, const Block& first,
                     const Block& second);
  /// A scalar that is a multiple of one that requires grad.
  SymbolicValue scale(const SymbolicValue& x);

  Mark mark() const;
  /// Lets go of everything above the mark.
  void release(const Mark& m);
  /// A tensor that takes a gradient; parameter p is leaf p from the beginning.
  int add_leaf();
  SymbolicGradient& gradient_of(int leaf) {
    return leaves_[static_cast<std::size_t>(leaf)].gradient;
  }

 protected:
  /// Stands for a tensor that a node keeps, or a frame for its inputs.
  struct Saved {
    Block block;
    Block host;
    int placeholder = -1;
    bool requires_grad = false;
    bool half = false;
  };
  struct Node {
    enum class Kind : std::uint8_t { layer, cast, view, loss, segment };
    Kind kind{};
    int layer = -1;
    const SegmentSpec* segment = nullptr;
    int first_slot = 0;
    int outputs = 1;
    int first_edge = 0;
    int edges = 0;
    int first_saved = 0;
    int saved = 0;
    std::int64_t bytes = 0;  ///< cast, loss: of the gradient that it makes.
    int log = -1;            ///< segment: of the states that its layers read.
    bool reached = false;    ///< A root of the backward at hand depends on it.
  };
  /// One call of the non-reentrant variant.
  struct Frame {
    const SegmentSpec* segment = nullptr;
    int first_input = 0;
    int inputs = 0;
    int first_placeholder = -1;
    int last_placeholder = -1;
    int first_kept = -1;
    int saves = 0;
    int log = -1;     ///< Log of the states that its layers read.
    int holders = 0;  ///< Placeholders that the graph still holds.
    bool over = false;
    bool recomputed = false;
  };
  struct Placeholder {
    Block recomputed;
    int frame = 0;
    int next = -1;
    bool held = true;
  };
  /// Results of a layer that a policy keeps.
  struct Kept {
    int layer = 0;
    int first_block = 0;
    int blocks = 0;
    int next = -1;
  };
  /// State that a layer read, in the log of a region.
  struct State {
    int log = 0;
    int layer = 0;
    Block block;
  };
  struct Leaf {
    SymbolicGradient gradient;
    SymbolicGradient sum;
    int waiting = 0;
  };
  /// Where saves go.
  struct Hooks {
    enum class Kind : std::uint8_t { none, offload, frame, recomputation };
    Kind kind = Kind::none;
    int frame = -1;
    int next_placeholder = -1;
    int count = 0;
  };
  /// Shapes of a layer, in elements, and where its operands lie among the values before it.
  struct Layout {
    int first_operand = 0;
    int operands = 0;
    int first_output = 0;
    int outputs = 0;
    int parameters = 0;
    int first_move = 0;
    int moves = 0;
    bool trainable = false;
    bool detached = false;
    /// A parameter takes part as one that requires grad.
    bool trains() const { return trainable && !detached; }
  };
  using Edges = std::span<const SymbolicEdge>;

  ~GraphNodes() = default;
  /// Runs a frame's segment again, so that its placeholders have their tensors.
  virtual void recompute(int frame) = 0;

  Node begin_node(Node::Kind kind, Edges edges);
  bool finish_node(Node& node);
  void save(const Block& block, bool requires_grad = false, bool half = false);
  Block get(int saved);
  Block fetch(int placeholder);
  void drop(int saved);
  void drop_frame(int frame);
  void drop_kept(const Frame& frame);
  void drop_log(int log);
  Block allocate(std::int64_t elements, bool half = false) {
    return heap_->allocate(elements * (half ? 2 : item_));
  }
  std::int64_t parameter_elements(int layer, int position) const;
  SymbolicEdge edge_of(const Node& node, int e) const {
    return edges_[static_cast<std::size_t>(node.first_edge + e)];
  }

  const Case* case_ = nullptr;
  const Geometry* geometry_ = nullptr;
  const Facts* facts_ = nullptr;
  std::vector<Layout> layouts_;
  /// Positions in the window of live values, and extents, of all layers, by Layout.
  std::vector<int> operand_at_;
  std::vector<std::int64_t> operand_elements_;
  std::vector<std::int64_t> output_elements_;
  /// How the values live after a layer come about: from position m of those before, or, if m < 0,
  /// as output -1 - m.
  std::vector<int> moves_;
  std::int64_t item_ = 0;

  SymbolicHeap* heap_ = nullptr;
  SymbolicHeap* host_ = nullptr;
  Trace* trace_ = nullptr;
  Listener* listener_ = nullptr;

  std::vector<Node> nodes_;
  std::vector<Frame> frames_;
  std::vector<Placeholder> placeholders_;
  std::vector<Kept> kept_;
  std::vector<Block> kept_blocks_;
  /// In the order in which they were read.
  std::vector<State> states_;
  std::vector<SymbolicEdge> edges_;
  std::vector<Saved> saved_;
  std::vector<SymbolicGradient> slots_;
  std::vector<Leaf> leaves_;

  Hooks hooks_;
  Block offload_source_;
  /// A recomputation has all that it is for.
  bool stopped_ = false;
  /// Executions of each layer in the current forward, and whether it is the first.
  std::vector<int>* executions_ = nullptr;
  bool first_ = false;
  /// Results that a layer, or a node, has at hand.
  std::vector<Block> results_;

 private:
  void lay_out(int layer);
};

}  // namespace rematch
