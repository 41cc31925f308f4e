#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/checkpoint/mechanics.h"
#include "engine/tensor/state_reader.h"

namespace rematch {

/// Values that the layers of a region read of their states, in the order of its forward.
class StateLog {
 public:
  StateLog() = default;
  StateLog(StateLog&&) noexcept = default;
  StateLog& operator=(StateLog&&) = delete;
  ~StateLog() { clear(); }

  void add(Tensor value);
  void remove_last() noexcept;
  void clear() noexcept;
  const std::vector<Tensor>& values() const { return values_; }
  /// The forward is over: what it has not read it does not read.
  void close() { closed_ = true; }
  bool closed() const { return closed_; }

 private:
  std::vector<Tensor> values_;
  bool closed_ = false;
};

/// For the time of a region's forward: what is read goes to the log, and to those of the regions
/// around this one.
class StateRecording final : public StateReader {
 public:
  explicit StateRecording(StateLog& log)
      : log_(log), outer_(std::exchange(ambient().states, this)) {}
  ~StateRecording() override { ambient().states = outer_; }
  StateRecording(const StateRecording&) = delete;
  StateRecording& operator=(const StateRecording&) = delete;
  Tensor read(const Tensor& state) override;
  void unread() noexcept override;

 private:
  StateLog& log_;
  StateReader* outer_;
};

/// For the time of a recomputation: what is read comes from the log. Where a function
/// differentiates inside, it is recomputed before its forward has read everything; what no gradient
/// can need yet is read as it is.
class StateRecall final : public StateReader {
 public:
  StateRecall(const StateLog& log, const Mechanics& mechanics)
      : log_(log), mechanics_(mechanics), outer_(std::exchange(ambient().states, this)) {}
  ~StateRecall() override { ambient().states = outer_; }
  StateRecall(const StateRecall&) = delete;
  StateRecall& operator=(const StateRecall&) = delete;
  /// Throws CheckpointError where the forward read none, or one of another shape or dtype.
  Tensor read(const Tensor& state) override;
  void unread() noexcept override { --next_; }

 private:
  const StateLog& log_;
  const Mechanics& mechanics_;
  StateReader* outer_;
  std::size_t next_ = 0;
};

}  // namespace rematch
