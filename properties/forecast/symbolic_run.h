#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "properties/forecast/layer_rules.h"

namespace rematch {

/// A run of a case in which a tensor is only (storage, requires grad) and a gradient only the
/// expression that it would be. It follows the published rules of the two checkpoint variants and
/// of reverse accumulation, and shares no code with any engine.
///
/// Gradients as expressions: a gradient is the 64-bit hash of the formula that yields it. A vjp
/// mixes the layer and the operand into the hash of what arrives; a sum is commutative but not
/// associative, as floating-point addition is. Two runs whose gradients have equal hashes do the
/// same operations in the same order, so their bits must agree; where the hashes differ, the order
/// of a sum differs. 0 is the gradient that never arrived.
///
/// Order of a backward: nodes run newest first. Since every layer reads the layer before it, all
/// nodes lie on one chain and this order is the only possible one. A parameter's shares are summed
/// in the order of their arrival and added to its gradient once, when the last one has arrived.
class SymbolicRun {
 public:
  /// Takes the rules of a case, which must outlive the runs.
  void bind(const Case& c, const Geometry& geometry);
  /// One forward and its loss, layers in `detached` with their parameters as constants; `offload`:
  /// what the graph saves goes to host memory, save for the loss.
  void forward(std::span<const SegmentSpec> segments, std::span<const int> detached, bool offload);
  /// One backward of the last forward; once per forward.
  void backward();

  const std::vector<LayerRule>& rules() const { return rules_; }
  /// Of forward and backward together, per layer.
  const std::vector<int>& executions() const { return executions_; }
  /// Executions that computed the layer's results instead of recalling them.
  const std::vector<int>& computations() const { return computations_; }
  /// Hook firings per parameter.
  const std::vector<int>& hooks() const { return hooks_; }
  /// Layers whose trainable parameters a reentrant region froze.
  const std::vector<int>& frozen() const { return frozen_; }
  std::int64_t saved_bytes() const { return saved_bytes_; }
  std::int64_t offloaded_bytes() const { return offloaded_bytes_; }
  /// A replay drew without the random state of its forward.
  bool drew_afresh() const { return drew_afresh_; }
  /// requires_grad after the layer's first execution, by value_index().
  bool flag(ValueRef v) const { return flags_[static_cast<std::size_t>(value_index(v))] != 0; }
  /// requires_grad of the model outputs, as live.back() lists them.
  const std::vector<char>& output_flags() const { return output_flags_; }
  /// What the backward left in each parameter's gradient, had it been empty before.
  const std::vector<std::uint64_t>& gradients_on_empty() const { return on_empty_; }
  /// The same, had there been an older gradient.
  const std::vector<std::uint64_t>& gradients_on_older() const { return on_older_; }
  std::uint64_t input_gradient() const { return input_gradient_; }

 private:
  struct Storage {
    std::int64_t bytes = 0;
    bool held = false;
    bool offloaded = false;  ///< The host has a copy.
  };
  struct Value {
    int storage = 0;
    int gradient = -1;  ///< Index into gradients_, if it requires grad.
    bool requires_grad = false;
    bool half = false;  ///< bfloat16.
    bool cast = false;  ///< An operand that was cast first.
  };
  struct Node {
    int layer = -1;  ///< -1: a reentrant region, or the leaves of a graph.
    const SegmentSpec* region = nullptr;
    int frame = -1;  ///< Frame that holds placeholders for what this node saved.
    int first_gradient = 0;
    int outputs = 0;
    int first_operand = 0;
    int operands = 0;
  };
  /// One call of the non-reentrant variant, or one replay of such a call.
  struct Frame {
    const SegmentSpec* region = nullptr;
    int parent = -1;  ///< Frame that holds placeholders for the inputs.
    int first_input = 0;
    int saves = 0;
    bool alive = false;  ///< A node, or a frame that lives, saved something under it.
    int stop_after = 0;  ///< A replay ends with this save; 0: it does not end early.
    bool replayed = false;
    bool recalls = false;  ///< A replay: what the policy kept is not computed.
  };
  /// Heights of the stacks, so that a replay leaves nothing behind.
  struct Mark {
    std::size_t nodes, frames, operands, gradients, storages;
  };

  // symbolic_forward.cpp
  void run(int begin, int end, std::span<const SegmentSpec> segments, bool grad_mode);
  void run_layer(int layer, bool grad_mode);
  void checkpoint(const SegmentSpec& region, bool grad_mode);
  void checkpoint_reentrant(const SegmentSpec& region);
  void checkpoint_non_reentrant(const SegmentSpec& region);
  void save(int storage);
  void count_save();
  void graph_holds(int storage);
  void hold(int storage);
  Value cast_operand(const Value& x, const LayerRule& rule, int position);
  int cast_weight(const LayerRule& rule, bool trains);
  int add_storage(std::int64_t bytes);
  int add_gradients(int count);
  int capture_live(int boundary);
  int live_count(int boundary) const;
  Value& value(ValueRef v) { return values_[static_cast<std::size_t>(value_index(v))]; }
  void freeze(const SegmentSpec& region);

  // symbolic_backward.cpp
  void walk(int leaves, int depth);
  void visit(const Node& node, int depth);
  void replay(int frame);
  void replay_reentrant(const Node& node, int depth);
  void deliver(const Value& to, std::uint64_t gradient);
  void expect_shares(int depth, int layer);
  void take_share(int depth, int parameter, std::uint64_t gradient);
  Mark mark() const;
  void release(const Mark& m);

  const Geometry* geometry_ = nullptr;
  LossKind loss_ = LossKind::mse;
  bool input_requires_grad_ = false;
  std::int64_t item_bytes_ = 0;
  std::vector<LayerRule> rules_;

  std::vector<Value> values_;
  std::vector<Storage> storages_;
  std::vector<Node> nodes_;
  std::vector<Frame> frames_;
  std::vector<Value> operands_;
  std::vector<std::uint64_t> gradients_;
  std::vector<char> detached_;
  int frame_ = -1;  ///< Innermost frame: where saves go.
  bool stopped_ = false;
  bool afresh_ = false;  ///< In a replay without the random state of its forward.
  bool in_forward_ = false;

  /// Per nesting depth of backward passes and parameter: shares under way, and their sum so far.
  std::vector<int> awaited_;
  std::vector<std::uint64_t> sums_;

  /// Storages that the policy of the frame at hand keeps.
  std::vector<int> kept_;

  const Case* case_ = nullptr;
  std::vector<int> executions_;
  std::vector<int> computations_;
  std::vector<int> hooks_;
  std::vector<int> frozen_;
  std::vector<char> flags_;
  std::vector<char> output_flags_;
  std::int64_t saved_bytes_ = 0;
  std::int64_t offloaded_bytes_ = 0;
  bool offload_ = false;
  /// The storage of each parameter's cast in the cache of the forward; -1: not there.
  std::vector<int> casts_;
  bool drew_afresh_ = false;
  std::vector<std::uint64_t> on_empty_;
  std::vector<std::uint64_t> on_older_;
  std::uint64_t input_gradient_ = 0;
};

}  // namespace rematch
