#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "properties/forecast/byte_rules.h"
#include "properties/forecast/layer_rules.h"
#include "properties/forecast/symbolic_heap.h"
#include "properties/record/record.h"

namespace rematch {

/// A run of a case in which a tensor is only its bytes: which of them are held when, from shapes
/// and the published rules of both checkpoint variants, reverse accumulation, offload and autocast.
/// It shares no code with any engine.
///
/// What it takes for granted of an engine (properties/README.md says the same in words):
/// - an op holds its operands and results while it runs, and workspace; what it saves is held until
///   its backward has run, unless the graph is retained;
/// - a caller holds what it gave to a function until that returns;
/// - nodes run newest first, a leaf takes its gradient as soon as all shares are there;
/// - a gradient is handed on without a copy; a second one is added in place if nobody else holds
///   the first, else into new memory; a leaf takes over a gradient that nobody else holds, and
///   copies any other;
/// - a replay's graph goes when the replay ends, recomputed tensors when they were read.
class SymbolicMemory {
 public:
  /// `rules`: one per layer; they, the case and its geometry must outlive the runs.
  void bind(const Case& c, const Geometry& geometry, std::span<const LayerRule> rules,
            bool host_kernels);
  /// The events of the first step and, if there is one, the second: all later ones are like that.
  /// Parameters of layers in `detached` take part as constants.
  void run(std::span<const SegmentSpec> segments, std::span<const int> detached, bool offload,
           std::vector<LiveReading>& events);
  /// Which of the events of the last run is the first of a replay.
  const std::vector<std::size_t>& replays() const { return replays_; }

 private:
  /// Where a gradient goes: to a slot of the node that made the value, to a leaf, or nowhere.
  struct Edge {
    int slot = -1;
    int leaf = -1;
    bool needed() const { return slot >= 0 || leaf >= 0; }
  };
  struct Value {
    Block block;
    bool requires_grad = false;
    bool half = false;  ///< bfloat16.
    Edge edge;
    Edge gradient() const { return requires_grad ? edge : Edge{}; }
  };
  /// What a node, or a frame for its inputs, keeps in place of a tensor.
  struct Saved {
    Block block;
    Block host;
    int placeholder = -1;
    bool requires_grad = false;
    bool half = false;
  };
  struct Node {
    enum class Kind : std::uint8_t { leaves, layer, cast, view, loss, region };
    Kind kind{};
    int layer = -1;
    const SegmentSpec* region = nullptr;
    int first_slot = 0;
    int outputs = 1;
    int first_edge = 0;
    int edges = 0;
    int first_saved = 0;
    int saved = 0;
    std::int64_t bytes = 0;  ///< cast, loss: of the gradient that it makes.
  };
  /// One call of the non-reentrant variant.
  struct Frame {
    const SegmentSpec* region = nullptr;
    int first_input = 0;
    int inputs = 0;
    int first_placeholder = -1;
    int last_placeholder = -1;
    int first_kept = -1;
    int saves = 0;
    int holders = 0;  ///< Placeholders that the graph still holds.
    bool over = false;
    bool replayed = false;
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
    Block blocks[3];
    int next = -1;
  };
  struct Leaf {
    Block gradient;
    Block sum;
    int waiting = 0;
  };
  /// Where saves go.
  struct Hooks {
    enum class Kind : std::uint8_t { none, offload, frame, replay };
    Kind kind = Kind::none;
    int frame = -1;
    int next_placeholder = -1;
    int count = 0;
  };
  /// Heights of the stacks.
  struct Mark {
    std::size_t nodes = 0;
    std::size_t frames = 0;
    std::size_t placeholders = 0;
    std::size_t kept = 0;
    std::size_t edges = 0;
    std::size_t saved = 0;
    std::size_t slots = 0;
    std::size_t leaves = 0;
  };
  /// A forward whose backward is to come. The graphs of several lie on each other, the last one on
  /// top.
  struct Pass {
    Block input;
    Block loss;
    Edge root;
    Mark graph;
    bool requires_grad = false;
  };
  struct CastCache {
    std::vector<Block> values;
    void clear() { values.assign(values.size(), {}); }
  };

  // symbolic_memory.cpp: the protocol.
  void run_step(int step);
  void run_forward(int pass);
  void run_loss(Pass& pass, const Shape& shape, const Block& target);
  void run_backward(int pass);
  void step_optimizer();
  void note(Event event, int layer = -1, int execution = 0, std::int64_t entered = 0);

  // symbolic_memory_forward.cpp
  void run_layers(int begin, int end, std::span<const SegmentSpec> segments, bool grad,
                  std::size_t window);
  void run_layer(int layer, bool grad, std::size_t window);
  void apply(int layer, bool grad, const Value& x, const Value& other, Value (&made)[2]);
  void apply_product(int layer, bool grad, const Value& x, Value (&made)[2]);
  void apply_view(int layer, bool grad, const Value& x, Value (&made)[2]);
  void record(int layer, std::span<const Edge> edges, const Block& x, const Block& weight,
              const Block (&extras)[2], Value (&made)[2]);
  bool recall(int layer, Block (&results)[3]) const;
  void keep(int layer, const Block& first, const Block& second, const Block& third);
  void checkpoint(const SegmentSpec& region, bool grad, std::size_t window);
  void checkpoint_reentrant(const SegmentSpec& region, std::size_t window);
  void checkpoint_non_reentrant(const SegmentSpec& region, std::size_t window);
  std::size_t copy_window(std::size_t window);
  void replace_window(std::size_t window, std::size_t by);
  Value cast(const Value& x, std::int64_t elements, bool to_half, bool grad);
  Value cast_parameter(int layer, int position, bool grad);
  Block parameter(int position, int layer);
  Edge parameter_edge(int layer, int position, bool grad) const;
  void save(const Block& block, bool requires_grad = false, bool half = false);
  Node begin_node(Node::Kind kind, std::span<const Edge> edges);
  bool finish_node(Node& node);
  Block allocate(std::int64_t elements, bool half = false) {
    return heap_.allocate(elements * (half ? 2 : item_));
  }

  // symbolic_memory_backward.cpp
  void walk(int first, int depth, bool retain, std::span<const int> leaf_roots);
  void visit(int index, int depth, bool retain);
  void differentiate(const Node& node, std::size_t out, std::size_t in, int depth);
  void differentiate_layer(const Node& node, std::size_t out, std::size_t in);
  void differentiate_product(const Node& node, std::size_t out, std::size_t in);
  void differentiate_region(const Node& node, std::size_t out, std::size_t in, int depth);
  void arrive(const Edge& edge, Block gradient, int depth);
  static void add(Block& sum, Block gradient, SymbolicHeap& heap);
  void accumulate(int leaf, int depth);
  Leaf& shares_of(int leaf, int depth);
  void replay(int frame);
  void run_region_again(const SegmentSpec& region, std::size_t window, const Hooks& hooks);
  Block get(int saved);
  Block fetch(int placeholder);
  void drop(int saved);
  void drop_frame(int frame);
  Mark mark() const;
  void release(const Mark& m);
  int add_leaf();

  const Case* case_ = nullptr;
  const Geometry* geometry_ = nullptr;
  std::span<const LayerRule> rules_;
  std::vector<ByteRule> bytes_;
  /// How the values live after a layer come about: from position m of those before, or, if m < 0,
  /// as output -1 - m. Those of layer i begin at first_move_[i].
  std::vector<int> moves_;
  std::vector<int> first_move_;
  std::int64_t item_ = 0;

  std::span<const SegmentSpec> segments_;
  bool offload_ = false;
  std::vector<char> detached_;
  std::vector<LiveReading>* events_ = nullptr;
  std::vector<std::size_t> replays_;
  int step_ = 0;
  int pass_ = 0;

  SymbolicHeap heap_;
  SymbolicHeap host_;
  Block model_;
  /// Stands for every parameter.
  Block constant_;
  std::vector<Block> state_;
  std::vector<Pass> passes_;
  std::vector<int> executions_;

  /// Windows of live values, innermost last: one per call that holds some.
  std::vector<Value> stack_;
  std::vector<Node> nodes_;
  std::vector<Frame> frames_;
  std::vector<Placeholder> placeholders_;
  std::vector<Kept> kept_;
  std::vector<Edge> edges_;
  std::vector<Saved> saved_;
  std::vector<Block> slots_;
  std::vector<Leaf> leaves_;
  /// Shares of parameters in nested backwards, by depth - 1.
  std::vector<Leaf> nested_shares_;
  /// Gradients at hand, of the nodes that are being visited.
  std::vector<Block> hands_;
  std::vector<int> ready_;
  std::vector<int> replayed_;

  Hooks hooks_;
  Block offload_source_;
  bool stopped_ = false;
  int policy_frame_ = -1;
  bool recalls_ = false;
  CastCache scope_cache_;
  CastCache replay_cache_;
  CastCache* cache_ = nullptr;
};

}  // namespace rematch
