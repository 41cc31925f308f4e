#include "engine/emulator/stream.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "engine/emulator/memory.h"

namespace rematch::emulator {

namespace {

thread_local cudaError_t last = cudaSuccess;
/// The process's error.
std::atomic<cudaError_t> lost{cudaSuccess};
std::array<std::atomic<std::int64_t>, kAskedCount> asked;
/// Those that the calling thread has begun and not ended.
thread_local std::vector<CUgraph_st*> captures;

/// All threads' captures; an event may outlive the one that it belongs to.
std::vector<CUgraph_st*>& live_captures() {
  static auto* const all = new std::vector<CUgraph_st*>;
  return *all;
}

/// In the order of their making. Never destroyed: threads may end after everything else.
std::vector<cudaStream_t>& streams() {
  static auto* const all = new std::vector<cudaStream_t>;
  return *all;
}

/// Empty for one that is not set.
std::string_view variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

bool are_mixed() {
  static const bool mixed = variable("REMATCH_EMULATOR_STREAMS") == "mixed";
  return mixed;
}

void run_early_ones();

void run_until(cudaStream_t s, std::uint64_t number) {
  while (s->done < number) {
    const CUstream_st::Item item = std::move(s->queue.front());
    s->queue.pop_front();
    s->is_busy = true;
    if (item.other != nullptr) {
      run_until(item.other, item.after);
    } else if (lost == cudaSuccess) {
      item.task();
    }
    ++s->done;
    s->is_busy = false;
    run_early_ones();
  }
}

/// Each until it is done, or waits for what has not happened.
void run_early_ones() {
  if (!are_mixed()) return;
  static thread_local constinit bool is_running = false;
  if (std::exchange(is_running, true)) return;
  for (const cudaStream_t s : streams()) {
    while (s->is_early && !s->is_busy && s->done < s->queued) {
      const CUstream_st::Item& next = s->queue.front();
      if (next.other != nullptr && next.other->done < next.after) break;
      run_until(s, s->done + 1);
    }
  }
  is_running = false;
}

void queue_up(cudaStream_t s, CUstream_st::Item item) {
  s->queue.push_back(std::move(item));
  ++s->queued;
  if (!s->is_early) return;
  const Unlocked memory;
  run_early_ones();
}

/// The refusal of what a stream that is being captured cannot do; it spoils the capture.
cudaError_t spoil(cudaStream_t s) {
  s->capture->is_valid = false;
  return failed(cudaErrorStreamCaptureUnsupported);
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::recursive_mutex& device_lock() {
  static auto* const lock = new std::recursive_mutex;
  return *lock;
}

cudaError_t failed(cudaError_t status) {
  last = status;
  return status;
}

void refuse(cudaError_t status) { (void)failed(status); }

cudaError_t outcome() { return lost == cudaSuccess ? cudaSuccess : failed(lost); }

void lose(cudaError_t status) { lost = status; }

void launch_kernel(cudaStream_t s, std::string_view name, Task task) {
  static const std::string_view number = variable("REMATCH_EMULATOR_LOSE_AT");
  static const std::string_view text = variable("REMATCH_EMULATOR_LOSE_IN");
  static const bool is_blocking = variable("CUDA_LAUNCH_BLOCKING") == "1";
  static std::uint64_t launched = 0;
  const std::lock_guard hold(device_lock());
  if (outcome() != cudaSuccess) return;
  static const bool is_older = variable("REMATCH_EMULATOR_DRIVER") == "older";
  if (is_older) return refuse(cudaErrorUnsupportedPtxVersion);
  const bool is_the_one = std::to_string(++launched) == number ||
                          (!text.empty() && name.find(text) != std::string_view::npos);
  if (is_the_one) task = [] { lose(cudaErrorIllegalAddress); };
  enqueue(s, std::move(task));
  if (!is_blocking || (s != nullptr && s->capture != nullptr)) return;
  drain(s);
  (void)outcome();
}

void count(Asked what) { ++asked[static_cast<std::size_t>(what)]; }

void enqueue(cudaStream_t s, Task task) {
  const std::lock_guard hold(device_lock());
  if (s == nullptr) {
    const Unlocked memory;
    return task();
  }
  if (s->capture != nullptr) {
    s->capture->tasks.push_back(std::move(task));
    ++s->clock[s];
    return;
  }
  queue_up(s, {std::move(task)});
}

void enqueue_wait(cudaStream_t s, cudaStream_t other, std::uint64_t after) {
  queue_up(s, {{}, other, after});
}

void drain(cudaStream_t s) {
  const std::lock_guard hold(device_lock());
  if (s == nullptr || s->done == s->queued) return;
  const Unlocked memory;
  run_until(s, s->queued);
}

void drain_all() {
  const std::lock_guard hold(device_lock());
  for (const cudaStream_t s : streams()) drain(s);
}

bool is_idle() {
  const std::lock_guard hold(device_lock());
  return std::all_of(streams().begin(), streams().end(),
                     [](cudaStream_t s) { return s->done == s->queued; });
}

bool forbidden_in_capture() {
  for (CUgraph_st* const capture : captures) capture->is_valid = false;
  return !captures.empty();
}

}  // namespace rematch::emulator

using namespace rematch::emulator;

extern "C" std::int64_t rematch_emulator_asked(int what) {
  return asked[static_cast<std::size_t>(what)];
}

cudaError_t cudaGetLastError() {
  if (outcome() != cudaSuccess) return outcome();
  return std::exchange(last, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  (void)outcome();
  return last;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  *s = new CUstream_st;
  (*s)->flags = flags;
  (*s)->is_early = are_mixed() && streams().size() % 2 == 1;
  streams().push_back(*s);
  return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned* flags) {
  *flags = s->flags;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  if (outcome() != cudaSuccess) return outcome();
  if (s != nullptr && s->capture != nullptr) return spoil(s);
  count(Asked::wait);
  drain(s);
  return outcome();
}

cudaError_t cudaDeviceSynchronize() {
  if (outcome() != cudaSuccess) return outcome();
  if (forbidden_in_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  count(Asked::wait);
  drain_all();
  return outcome();
}

cudaError_t cudaStreamQuery(cudaStream_t s) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  if (s->capture != nullptr) return spoil(s);
  return s->done == s->queued ? cudaSuccess : failed(cudaErrorNotReady);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t function, void* data) {
  if (outcome() != cudaSuccess) return outcome();
  enqueue(s, [function, data] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  if (outcome() != cudaSuccess) return outcome();
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  event->stream = s;
  event->capture = s->capture;
  event->clock = s->clock;
  if (s->capture == nullptr) {
    event->when = std::make_shared<double>(0);
    enqueue(s, [when = event->when] { *when = seconds(); });
  }
  event->after = s->queued;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  if (event->capture != nullptr) return failed(cudaErrorCapturedEvent);
  if (event->stream == nullptr || event->stream->done >= event->after) return cudaSuccess;
  return failed(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  if (event->capture != nullptr) return failed(cudaErrorCapturedEvent);
  if (event->stream == nullptr) return cudaSuccess;
  count(Asked::wait);
  const Unlocked memory;
  run_until(event->stream, event->after);
  return outcome();
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (outcome() != cudaSuccess) return outcome();
  if (start->when == nullptr || end->when == nullptr) return failed(cudaErrorInvalidResourceHandle);
  if (*start->when == 0 || *end->when == 0) return failed(cudaErrorNotReady);
  *milliseconds = static_cast<float>((*end->when - *start->when) * 1e3);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned /*flags*/) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  // Waiting for an event that was never recorded has no effect.
  if (event->stream == nullptr) return cudaSuccess;
  if (event->capture == nullptr) {
    if (s->capture != nullptr) return failed(cudaErrorStreamCaptureIsolation);
    enqueue_wait(s, event->stream, event->after);
    return cudaSuccess;
  }
  const auto& live = live_captures();
  if (std::find(live.begin(), live.end(), event->capture) == live.end()) {
    return failed(cudaErrorCapturedEvent);
  }
  if (s->capture == nullptr) {
    s->capture = event->capture;
    s->capture->members.push_back(s);
  }
  if (s->capture != event->capture) return failed(cudaErrorStreamCaptureMerge);
  for (const auto& [stream, number] : event->clock) {
    std::uint64_t& known = s->clock[stream];
    known = std::max(known, number);
  }
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode /*mode*/) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  if (s == nullptr) return failed(cudaErrorStreamCaptureUnsupported);
  if (s->capture != nullptr) return failed(cudaErrorIllegalState);
  s->capture = new CUgraph_st;
  s->capture->origin = s;
  s->capture->members.push_back(s);
  captures.push_back(s->capture);
  live_captures().push_back(s->capture);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* status) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  *status = s->capture == nullptr  ? cudaStreamCaptureStatusNone
            : s->capture->is_valid ? cudaStreamCaptureStatusActive
                                   : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  *graph = nullptr;
  if (s->capture == nullptr) return failed(cudaErrorIllegalState);
  if (s->capture->origin != s) return failed(cudaErrorStreamCaptureUnmatched);
  std::unique_ptr<CUgraph_st> captured(s->capture);
  const CaptureClock known = s->clock;
  bool is_joined = true;
  for (const cudaStream_t member : captured->members) {
    const auto own = member->clock.find(member);
    const auto seen = known.find(member);
    if (own != member->clock.end() && (seen == known.end() || seen->second != own->second)) {
      is_joined = false;
    }
    member->capture = nullptr;
    member->clock.clear();
  }
  std::erase(captures, captured.get());
  std::erase(live_captures(), captured.get());
  if (!captured->is_valid) return failed(cudaErrorStreamCaptureInvalidated);
  if (!is_joined) return failed(cudaErrorStreamCaptureUnjoined);
  *graph = captured.release();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  if (outcome() != cudaSuccess) return outcome();
  *made = new CUgraphExec_st{graph->tasks};
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t s) {
  if (outcome() != cudaSuccess) return outcome();
  const std::lock_guard hold(device_lock());
  if (s->capture != nullptr) return spoil(s);
  enqueue(s, [tasks = executable->tasks] {
    for (const Task& task : tasks) task();
  });
  return cudaSuccess;
}
