#pragma once

// Streams that run as late as CUDA allows: nothing happens before something waits for it. With
// REMATCH_EMULATOR_STREAMS=mixed every second one, which in a thread's context is that of copies,
// runs as early as the events that it waits for allow. Between the two, work that lacks an event or
// a synchronization is done in the wrong order every time, not once a year.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace rematch::emulator {

using Task = std::function<void()>;

/// Held by every call. One device, one lock: this is about being right.
std::recursive_mutex& device_lock();

/// Sets the calling thread's last error, which it also returns.
cudaError_t failed(cudaError_t status);
/// The same for what returns nothing, such as a launch.
void refuse(cudaError_t status);

/// The error by which the device was lost, which is then the calling thread's last error as well;
/// cudaSuccess while it works. Every call begins with it, and those that wait end with it.
cudaError_t outcome();
/// Loses the device: what is queued is not done, and nothing works until the process ends.
void lose(cudaError_t status);

/// A kernel, by a name that contains its own. REMATCH_EMULATOR_LOSE_AT=N makes the Nth one of the
/// process lose the device when it runs, REMATCH_EMULATOR_LOSE_IN=TEXT each whose name contains the
/// text; with CUDA_LAUNCH_BLOCKING=1 a launch waits for it.
void launch_kernel(cudaStream_t stream, std::string_view name, Task task);

/// Work that the calls of all threads have asked of the device, run or captured, as programs can
/// see it: rematch_emulator_asked().
enum class Asked : std::uint8_t { kernel, product, fill, upload, download, copy, wait };
inline constexpr int kAskedCount = 7;
void count(Asked what);

/// Queues work on a stream, or takes it down where the stream is being captured.
void enqueue(cudaStream_t stream, Task task);

/// Queues a wait for the first `after` pieces of work of another stream.
void enqueue_wait(cudaStream_t stream, cudaStream_t other, std::uint64_t after);

/// Runs what has been queued on a stream, or on all of them.
void drain(cudaStream_t stream);
void drain_all();

/// Whether the calling thread is in a capture, which then is spoilt: it forbids what allocates or
/// waits for the device.
bool forbidden_in_capture();
/// Whether all streams have done what was queued.
bool is_idle();

}  // namespace rematch::emulator

/// For tests, which look it up by name: a program need not know what device it has.
extern "C" std::int64_t rematch_emulator_asked(int what);

/// How far each stream of a capture had come.
using CaptureClock = std::map<cudaStream_t, std::uint64_t>;

struct CUgraph_st {
  std::vector<rematch::emulator::Task> tasks;
  cudaStream_t origin = nullptr;
  /// The streams that were drawn in, `origin` too.
  std::vector<cudaStream_t> members;
  bool is_valid = true;
};

struct CUgraphExec_st {
  std::vector<rematch::emulator::Task> tasks;
};

struct CUstream_st {
  struct Item {
    /// Empty for a wait.
    rematch::emulator::Task task;
    cudaStream_t other = nullptr;
    std::uint64_t after = 0;
  };
  std::deque<Item> queue;
  std::uint64_t queued = 0;
  std::uint64_t done = 0;
  unsigned flags = 0;
  bool is_early = false;
  /// In the middle of a task or a wait.
  bool is_busy = false;
  CUgraph_st* capture = nullptr;
  CaptureClock clock;
};

struct CUevent_st {
  cudaStream_t stream = nullptr;
  /// As many of the stream's tasks come before the event.
  std::uint64_t after = 0;
  CUgraph_st* capture = nullptr;
  CaptureClock clock;
  /// Seconds, once it has been passed.
  std::shared_ptr<double> when;
};
