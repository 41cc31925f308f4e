#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace rematch {

class SymbolicHeap;

/// A handle on a block of memory that is only counted. The block is released with its last handle.
class Block {
 public:
  Block() = default;
  Block(const Block& other) noexcept : state_(other.state_) {
    if (state_ != nullptr) ++state_->handles;
  }
  Block(Block&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  Block& operator=(Block other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~Block() { reset(); }

  explicit operator bool() const { return state_ != nullptr; }
  std::int64_t bytes() const { return state_->bytes; }
  /// No other handle is on the block, so that its memory may be taken over.
  bool alone() const { return state_->handles == 1; }
  /// Belongs to the graph alone, not to the model or the caller: what an offload takes away, and
  /// what counts as saved.
  bool temporary() const { return state_->temporary; }
  inline void reset() noexcept;

  /// The graph saves it, as often as it says so and until it has let go as often.
  inline void hold() const;
  inline void let_go() const;

  /// Blocks of two heaps may know each other, a copy and its source: until either is released.
  Block twin() const {
    Block other;
    other.state_ = state_->twin;
    if (other.state_ != nullptr) ++other.state_->handles;
    return other;
  }
  void join(const Block& copy) const {
    state_->twin = copy.state_;
    copy.state_->twin = state_;
  }

 private:
  friend class SymbolicHeap;
  struct State {
    std::int64_t bytes = 0;
    int handles = 0;
    int holds = 0;
    bool temporary = true;
    SymbolicHeap* heap = nullptr;
    State* twin = nullptr;
  };
  State* state_ = nullptr;
};

/// Counts bytes as a ledger would, had there been any memory.
class SymbolicHeap {
 public:
  Block allocate(std::int64_t bytes, bool temporary = true) {
    if (free_.empty()) free_.push_back(&states_.emplace_back());
    Block block;
    block.state_ = free_.back();
    free_.pop_back();
    *block.state_ = {bytes, 1, 0, temporary, this, nullptr};
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    return block;
  }
  std::int64_t live() const { return live_; }
  std::int64_t peak() const { return peak_; }
  /// Live bytes that a graph saves.
  std::int64_t saved() const { return saved_; }
  void reset_peak() { peak_ = live_; }

 private:
  friend class Block;
  void release(Block::State* state) noexcept {
    live_ -= state->bytes;
    if (state->twin != nullptr) state->twin->twin = nullptr;
    free_.push_back(state);
  }

  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t saved_ = 0;
  std::deque<Block::State> states_;
  std::vector<Block::State*> free_;
};

inline void Block::hold() const {
  if (state_->holds++ == 0 && state_->temporary) state_->heap->saved_ += state_->bytes;
}

inline void Block::let_go() const {
  if (--state_->holds == 0 && state_->temporary) state_->heap->saved_ -= state_->bytes;
}

inline void Block::reset() noexcept {
  State* const state = std::exchange(state_, nullptr);
  if (state != nullptr && --state->handles == 0) state->heap->release(state);
}

}  // namespace rematch
