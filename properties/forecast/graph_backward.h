#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "properties/forecast/graph_nodes.h"

namespace rematch {

/// Reverse accumulation over the nodes of a symbolic graph.
class GraphBackward : public GraphNodes {
 public:
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

 protected:
  ~GraphBackward() = default;
  /// The backward of a reentrant segment's node; gradients lie in hands_, as for differentiate().
  virtual void differentiate_segment(const Node& node, std::size_t out, std::size_t in,
                                     int depth) = 0;

  void find_reached(int first, Edges roots);
  void drop_unreached(int first);
  void walk(int first, int depth, bool retain, std::span<const int> leaf_roots);
  Leaf& shares_of(int leaf, int depth);
  /// Commutative, not associative.
  static std::uint64_t sum_of(std::uint64_t a, std::uint64_t b);

  /// Shares of parameters in nested backwards, by depth - 1.
  std::vector<Leaf> nested_shares_;
  /// Gradients of the nodes that are visited, innermost last.
  std::vector<SymbolicGradient> hands_;
  /// Frames whose tensors are there.
  std::vector<int> recomputed_;

 private:
  void find_needed(int first, const std::vector<bool>& wanted);
  bool wants(int leaf) const {
    return wanted_leaves_.empty() || (std::cmp_less(leaf, wanted_leaves_.size()) &&
                                      wanted_leaves_[static_cast<std::size_t>(leaf)]);
  }
  void visit(int index, int depth, bool retain);
  void differentiate(const Node& node, std::size_t out, std::size_t in, int depth);
  void differentiate_layer(const Node& node, std::size_t out, std::size_t in);
  void differentiate_product(const Node& node, std::size_t out, std::size_t in);
  void arrive(const SymbolicEdge& edge, SymbolicGradient gradient, int depth);
  void add(SymbolicGradient& sum, SymbolicGradient gradient);
  void accumulate(int leaf, int depth);

  std::vector<int> ready_;
  /// The leaves that a partial backward is for, and whether slots lead to one. Empty: all.
  std::vector<bool> wanted_leaves_;
  std::vector<bool> needed_slots_;
  /// Scratch of find_reached().
  std::vector<bool> reached_slots_;
};

}  // namespace rematch
