#include <fmt/format.h>

#include "properties/case/json.h"
#include "properties/faults/fault.h"
#include "properties/output/terminal.h"
#include "properties/subjects/engine_subject.h"
#include "scenarios/report/scenario.h"
#include "scenarios/support/judging.h"

namespace rematch::scenarios::memory_never_freed_story {
namespace {

struct Bytes {
  std::int64_t after_forward = 0;
  std::int64_t after_backward = 0;
  std::int64_t peak = 0;
};

Bytes bytes_of(const Record& record) {
  Bytes bytes;
  for (const ByteReading& b : record.bytes) {
    if (b.moment == Moment::after_forward) bytes.after_forward = b.saved;
    if (b.moment == Moment::after_backward && b.retained) bytes.after_backward = b.saved;
  }
  bytes.peak = record.peak_bytes;
  return bytes;
}

void run(const Options& /*options*/, Report& report) {
  Case c;
  c.seed = 77284;
  c.input = {64, 64};
  LayerSpec layer;
  layer.kind = layer_kind("tanh");
  c.layers.assign(16, layer);
  for (int i = 0; i < 16; i += 4) c.plan.segments.push_back({i, i + 4, {}, {}});
  c.protocol.input_requires_grad = true;
  // All but the last backward retain the graph, and with it what stands for each saved tensor.
  c.protocol.backwards = 2;
  EngineSubject engine;
  EngineSubject keeps(find_fault("L1")->make);
  const Bytes plain = bytes_of(record_of(c, engine, false));
  const Bytes right = bytes_of(record_of(c, engine, true));
  const Bytes wrong = bytes_of(record_of(c, keeps, true));
  report.say(
      "16 layers tanh on float32 [64, 64], four checkpoints of four, and two backward passes over "
      "one "
      "graph. In the run in question a checkpoint's list of recomputed tensors keeps its entries "
      "after they were used. (This engine's graph drops the list's entries with its nodes, so that "
      "the fault shows while the graph is retained.)");
  Table& table = report.table("Bytes", {"run", "saved after the forward",
                                        "saved at the end of the first backward", "peak"});
  Chart chart{"Peak of one step", "run", "bytes", Chart::Kind::bars, {{"peak", {}, {}}}, {}};
  const auto row = [&](const char* name, const Bytes& b) {
    table.row({name, cli::grouped(b.after_forward), cli::grouped(b.after_backward),
               cli::grouped(b.peak)});
    chart.categories.emplace_back(name);
    chart.series[0].y.push_back(static_cast<double>(b.peak));
  };
  row("plain", plain);
  row("checkpointed", right);
  row("recomputed tensors kept", wrong);
  report.chart(std::move(chart));
  report.claim(
      right.after_forward == wrong.after_forward && right.peak < wrong.peak,
      fmt::format("After the forward all is as it should be, {} bytes instead of {}. In "
                  "the backward segment after segment comes back and stays: the peak is "
                  "{} bytes, where {} are enough and the plain run takes {}.",
                  cli::grouped(wrong.after_forward), cli::grouped(plain.after_forward),
                  cli::grouped(wrong.peak), cli::grouped(right.peak), cli::grouped(plain.peak)));
  claim_law_finds(c, keeps, "what is left", "bytes-after-backward", report);
}

}  // namespace
}  // namespace rematch::scenarios::memory_never_freed_story

namespace rematch::scenarios {

extern const Scenario memory_never_freed;
const Scenario memory_never_freed{
    "memory_never_freed",
    "I checkpoint every block without reentrance, and no memory is saved at all. Why?",
    "https://github.com/pytorch/pytorch/issues/77284",
    "The checkpoints held on to what they had recomputed, so that by the end of the backward every "
    "activation was there after all. A recomputed tensor has to be let go as soon as the graph has "
    "it. No gradient shows the fault; a count of bytes does.",
    memory_never_freed_story::run,
    {"Update PyTorch: current releases let go of each recomputed tensor as the backward passes it, "
     "also where the graph is retained. In a wrapper of your own, give a tensor away when it is "
     "unpacked, and keep no list of them.",
     {{"N5.alive", "freed_graph", "[0, 3, 2, 1, 0, 0]"},
      {"N5.alive", "retained_graph", "[0, 3, 2, 1, 0, 0]"},
      {"N5.after_backward", "non_reentrant_input_kept", "false"}}}};

}  // namespace rematch::scenarios
