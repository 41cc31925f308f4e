#pragma once

#include <functional>
#include <memory>

namespace rematch {
class Streams;
}

namespace rematch::cuda {

/// A step of training that was captured once and runs again at the price of one launch.
///
/// Random layers go on drawing: what a run draws depends on where the random streams are when it
/// begins, and it advances them as the step did, so that a run gives the bits that the step itself
/// would have given. Masks therefore differ from run to run, and a checkpointed region's
/// recomputation within the run draws what its forward drew.
class Graph {
 public:
  /// Captures what `step` does on the calling thread, drawing from `streams`: ambient().streams of
  /// that thread. Nothing is run, and the streams are left where they were. Before, the step must
  /// have run once on this thread with the same ledger (with offload: both), which then serves
  /// nothing else while the graph lives; its reads (MemoryResource::read) are to be finished before
  /// the capture, and before each run. A step cannot be captured that waits for the device (reads
  /// a value, reports draws), or whose host state matters. Optimizers have none: Adam counts its
  /// steps on the device, and goes on from there when it runs by itself again.
  /// Throws DeviceError, and what `step` throws.
  Graph(Streams& streams, const std::function<void()>& step);
  /// Waits for its runs, on any thread.
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Queues one run on the calling thread, which must be the one that captured. The streams must
  /// have the seeds they had then; throws DeviceError otherwise.
  void run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rematch::cuda
