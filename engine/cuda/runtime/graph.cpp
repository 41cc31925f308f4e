#include "engine/cuda/runtime/graph.h"

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/runtime/context.h"
#include "engine/cuda/runtime/offload.h"
#include "engine/random/generator.h"

namespace rematch::cuda {
namespace {

/// Draws of a captured step add, word for word, what the table on the device holds for their
/// stream: how far the stream has come since the capture.
using Advances = std::array<std::uint64_t, kDrawStreams>;

/// Points the thread's draws at a table for the time of a capture, and ends the capture.
class Capture {
 public:
  Capture(const std::uint64_t* table, std::vector<std::vector<std::byte>>& sources)
      : outer_(context().draw_advances) {
    // A copy that was begun outside cannot be waited for inside.
    finish_copies();
    check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    context().draw_advances = table;
    context().captured_sources = &sources;
  }
  ~Capture() {
    context().draw_advances = outer_;
    context().captured_sources = nullptr;
    if (ended_) return;
    finish_copies();
    // The step threw: what was captured so far is of no use.
    cudaGraph_t graph = nullptr;
    (void)cudaStreamEndCapture(stream(), &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaGraph_t end() {
    cudaGraph_t graph = nullptr;
    ended_ = true;
    // A capture that has spread to the stream of copies must come back from it.
    finish_copies();
    check(cudaStreamEndCapture(stream(), &graph), "cudaStreamEndCapture");
    context().deferred.rethrow();
    return graph;
  }

 private:
  const std::uint64_t* outer_;
  bool ended_ = false;
};

/// Puts the streams back, thrown through or not.
class KeepStreams {
 public:
  explicit KeepStreams(Streams& streams) : streams_(streams), before_(streams) {}
  ~KeepStreams() { streams_ = std::move(before_); }
  KeepStreams(const KeepStreams&) = delete;
  KeepStreams& operator=(const KeepStreams&) = delete;

 private:
  Streams& streams_;
  Streams before_;
};

}  // namespace

const std::uint64_t* draw_advance(std::uint64_t subsequence) {
  const std::uint64_t* advances = context().draw_advances;
  if (advances == nullptr) return nullptr;
  if (subsequence >= kDrawStreams) {
    throw DeviceError("[graph] a random stream below " + std::to_string(kDrawStreams) +
                      " expected in a captured step, got " + std::to_string(subsequence));
  }
  return advances + subsequence;
}

struct Graph::State {
  explicit State(Streams& those) : streams(those) {}

  Streams& streams;
  std::vector<Generator> began;
  std::vector<Generator> ended;
  /// Bytes that the graph's copies from the host read.
  std::vector<std::vector<std::byte>> sources;
  std::uint64_t* table = nullptr;
  cudaGraphExec_t executable = nullptr;
  /// The one that runs are queued on. The thread that destroys the graph may have another.
  cudaStream_t runs_on = stream();

  ~State() {
    // Work that is still queued may read any of these.
    (void)wait_for(runs_on);
    if (executable != nullptr) (void)cudaGraphExecDestroy(executable);
    if (table != nullptr) (void)cudaFree(table);
  }
};

Graph::Graph(Streams& streams, const std::function<void()>& step)
    : state_(std::make_unique<State>(streams)) {
  require_device("graph");
  forbid_capture("the capture of a graph");
  State& s = *state_;
  check(cudaMalloc(reinterpret_cast<void**>(&s.table), sizeof(Advances)), "cudaMalloc for a graph");
  const KeepStreams keep(streams);
  s.began = streams.states();
  cudaGraph_t graph = nullptr;
  {
    Capture capture(s.table, s.sources);
    step();
    graph = capture.end();
  }
  s.ended = streams.states();
  const cudaError_t status = cudaGraphInstantiate(&s.executable, graph, 0);
  (void)cudaGraphDestroy(graph);
  check(status, "cudaGraphInstantiate");
  if (s.ended.size() > kDrawStreams) {
    throw DeviceError("[graph] at most " + std::to_string(kDrawStreams) +
                      " random streams expected, got " + std::to_string(s.ended.size()));
  }
}

Graph::~Graph() = default;

void Graph::run() {
  State& s = *state_;
  Streams& streams = s.streams;
  if (streams.size() < static_cast<int>(s.ended.size())) {
    throw DeviceError("[graph] the " + std::to_string(s.ended.size()) +
                      " random streams of the capture expected, got " +
                      std::to_string(streams.size()));
  }
  Advances advances{};
  for (std::size_t i = 0; i < s.ended.size(); ++i) {
    const Generator& now = streams.at(static_cast<int>(i));
    // A stream that the step itself added began where add() put it.
    const Generator began = i < s.began.size() ? s.began[i] : Generator{s.ended[i].seed, i, 0};
    if (now.seed != began.seed) {
      throw DeviceError("[graph] random stream " + std::to_string(i) + " with seed " +
                        std::to_string(began.seed) + " expected, got " + std::to_string(now.seed) +
                        "; capture the step again after seeding");
    }
    // Modulo 2^64, as the draws add it: a stream may also have been put back.
    advances[i] = now.offset - began.offset;
  }
  copy_to_device(s.table, advances.data(), sizeof(advances));
  check(cudaGraphLaunch(s.executable, stream()), "cudaGraphLaunch");
  for (std::size_t i = 0; i < s.ended.size(); ++i) {
    const std::uint64_t began = i < s.began.size() ? s.began[i].offset : 0;
    streams.at(static_cast<int>(i)).offset += s.ended[i].offset - began;
  }
}

}  // namespace rematch::cuda
