#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/forecast/heap.h"
#include "properties/forecast/trace.h"
#include "properties/layers/facts.h"

namespace rematch {

/// The gradients of a symbolic run: memory, and the formula that yields the numbers, as a 64-bit
/// hash. A layer's backward mixes the layer and the operand into the hash of what arrives; a sum is
/// commutative but not associative, as floating-point addition is. Two gradients with equal hashes
/// come of the same operations in the same order, so their bits must agree; where the hashes
/// differ, the order of a sum differs.
struct SymbolicGradient {
  Block block;
  std::uint64_t formula = 0;
  explicit operator bool() const { return static_cast<bool>(block); }
  void reset() { block.reset(); }
};

/// Where a gradient goes: to a slot of the node that made the value, to a leaf, or nowhere.
struct SymbolicEdge {
  int slot = -1;
  int leaf = -1;
  bool needed() const { return slot >= 0 || leaf >= 0; }
};

/// A tensor of a symbolic run: its memory, whether it requires grad, and where its gradient goes.
struct SymbolicValue {
  Block block;
  bool requires_grad = false;
  bool half = false;  ///< bfloat16.
  SymbolicEdge edge;
  SymbolicEdge gradient() const { return requires_grad ? edge : SymbolicEdge{}; }
};

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
class SymbolicGraph {
 public:
  /// Where saved tensors go.
  enum class Saving : std::uint8_t { kept, offloaded };
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

  /// Nodes that a loss is made of. Each returns the value that it makes, or `x` as it was.
  SymbolicValue reshape(const SymbolicValue& x);
  SymbolicValue cast(const SymbolicValue& x, std::int64_t elements, bool to_half, bool records);
  /// A scalar that saves `first` and `second` and whose gradient has `elements`.
  SymbolicValue loss(const SymbolicValue& x, std::int64_t elements, const Block& first,
                     const Block& second);
  /// A scalar that is a multiple of one that requires grad.
  SymbolicValue scale(const SymbolicValue& x);

  /// A backward.
  struct Call {
    SymbolicEdge root;  ///< Has a gradient of one.
    int number = 0;     ///< Position of the root among others.
    bool retain = false;
    /// The leaves that it is for, by index; empty: all.
    const std::vector<bool>& wanted;
  };
  /// Runs those of the nodes from `from` on that lead to the root.
  void backward(const Mark& from, const Call& call, std::vector<int>& executions, bool first);

  Mark mark() const;
  /// Lets go of everything above the mark.
  void release(const Mark& m);
  /// A tensor that takes a gradient; parameter p is leaf p from the beginning.
  int add_leaf();
  SymbolicGradient& gradient_of(int leaf) {
    return leaves_[static_cast<std::size_t>(leaf)].gradient;
  }

  /// Autocast scopes, each with a cache of casts of its own if the case has caches.
  void enter_autocast() { cache_ = &scope_cache_; }
  void leave_autocast();

 private:
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
  /// A region whose forward runs, or whose recomputation does.
  struct Reader {
    int log = 0;
    bool replays = false;
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
  struct CastCache {
    std::vector<Block> values;
    void clear() { values.assign(values.size(), {}); }
  };
  /// Shapes of a layer, in elements, and where its operands lie among the values before it.
  struct Layout {
    int first_operand = 0;
    int operands = 0;
    int first_output = 0;
    int outputs = 0;
    int first_parameter = 0;
    int parameters = 0;
    int first_move = 0;
    int moves = 0;
    bool trainable = false;
    bool detached = false;
    /// A parameter takes part as one that requires grad.
    bool trains() const { return trainable && !detached; }
  };
  using Edges = std::span<const SymbolicEdge>;

  // graph.cpp
  void lay_out(int layer);
  SymbolicEdge parameter_edge(int layer, int position, bool records) const;
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

  // graph_layers.cpp
  void run_layers(int begin, int end, std::span<const SegmentSpec> segments, bool records,
                  std::size_t window);
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

  // graph_checkpoint.cpp
  void checkpoint(const SegmentSpec& segment, bool records, std::size_t window);
  void checkpoint_reentrant(const SegmentSpec& segment, std::size_t window);
  void checkpoint_non_reentrant(const SegmentSpec& segment, std::size_t window);
  void recompute(int frame);
  void differentiate_segment(const Node& node, std::size_t out, std::size_t in, int depth);
  void run_again(const SegmentSpec& segment, int log, std::size_t window, const Hooks& hooks);
  std::size_t copy_window(std::size_t window);
  void replace_window(std::size_t window, std::size_t by);

  // graph_backward.cpp
  void find_reached(int first, Edges roots);
  void drop_unreached(int first);
  void find_needed(int first, const std::vector<bool>& wanted);
  bool wants(int leaf) const {
    return wanted_leaves_.empty() || (std::cmp_less(leaf, wanted_leaves_.size()) &&
                                      wanted_leaves_[static_cast<std::size_t>(leaf)]);
  }
  void walk(int first, int depth, bool retain, std::span<const int> leaf_roots);
  void visit(int index, int depth, bool retain);
  void differentiate(const Node& node, std::size_t out, std::size_t in, int depth);
  void differentiate_layer(const Node& node, std::size_t out, std::size_t in);
  void differentiate_product(const Node& node, std::size_t out, std::size_t in);
  void arrive(const SymbolicEdge& edge, SymbolicGradient gradient, int depth);
  /// Commutative, not associative.
  static std::uint64_t sum_of(std::uint64_t a, std::uint64_t b);
  void add(SymbolicGradient& sum, SymbolicGradient gradient);
  void accumulate(int leaf, int depth);
  Leaf& shares_of(int leaf, int depth);
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

  std::span<const SegmentSpec> segments_;
  SymbolicHeap* heap_ = nullptr;
  SymbolicHeap* host_ = nullptr;
  Trace* trace_ = nullptr;
  const Trace* measured_ = nullptr;
  Listener* listener_ = nullptr;
  /// Stands for every parameter.
  Block constant_;

  /// Windows of live values, innermost last: one per call that holds some.
  std::vector<SymbolicValue> stack_;
  std::vector<Node> nodes_;
  std::vector<Frame> frames_;
  std::vector<Placeholder> placeholders_;
  std::vector<Kept> kept_;
  std::vector<Block> kept_blocks_;
  /// In the order in which they were read.
  std::vector<State> states_;
  /// Innermost last.
  std::vector<Reader> readers_;
  int logs_ = 0;
  std::vector<SymbolicEdge> edges_;
  std::vector<Saved> saved_;
  std::vector<SymbolicGradient> slots_;
  std::vector<Leaf> leaves_;
  /// Shares of parameters in nested backwards, by depth - 1.
  std::vector<Leaf> nested_shares_;
  /// Stacks for layers that run or nodes that are visited, innermost last: operands and parameters
  /// after their casts, outputs, results of the kernel, edges to be, and gradients at hand.
  std::vector<SymbolicValue> operands_;
  std::vector<SymbolicValue> made_;
  std::vector<Block> results_;
  std::vector<SymbolicEdge> wanted_;
  std::vector<SymbolicGradient> hands_;
  std::vector<int> ready_;
  /// The leaves that a partial backward is for, and whether slots lead to one. Empty: all.
  std::vector<bool> wanted_leaves_;
  std::vector<bool> needed_slots_;
  /// Scratch of find_reached().
  std::vector<bool> reached_slots_;
  std::vector<int> recomputed_;

  Hooks hooks_;
  Block offload_source_;
  /// A recomputation has all that it is for.
  bool stopped_ = false;
  /// In a recomputation without the random state of its forward.
  bool afresh_ = false;
  int policy_frame_ = -1;
  bool recalls_ = false;
  CastCache scope_cache_;
  CastCache recomputation_cache_;
  CastCache* cache_ = nullptr;
  /// Executions of each layer in the current forward, and whether it is the first.
  std::vector<int>* executions_ = nullptr;
  bool first_ = false;
};

}  // namespace rematch
