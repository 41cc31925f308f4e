#include <fmt/format.h>

#include "properties/output/terminal.h"
#include "scenarios/support/judging.h"

namespace rematch::scenarios::memory_never_freed_story {
using cli::grouped;

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

  EngineSubject keeps(find_fault("L1")->make);
  const Record plain = record_of(c, false);
  const Record right = record_of(c, true);
  const Record wrong = record_of(c, keeps);
  report.say(
      "16 layers tanh on float32 [64, 64], four checkpoints of four, and two backward passes over "
      "one graph. In the run in question a checkpoint's list of recomputed tensors keeps its "
      "entries after they were used. (This engine's graph drops the list's entries with its nodes, "
      "so that the fault shows while the graph is retained.)");
  Table& table = report.table("Bytes", {"run", "saved after the forward",
                                        "saved at the end of the first backward", "peak"});
  Chart chart = bars("Peak of one step", "run", "bytes", {"peak"});
  const auto row = [&](const char* name, const Record& r) {
    table.row({name, grouped(saved_bytes(r, Moment::after_forward)),
               grouped(saved_bytes(r, Moment::after_backward)), grouped(r.peak_bytes)});
    add_bars(chart, name, {static_cast<double>(r.peak_bytes)});
  };
  row("plain", plain);
  row("checkpointed", right);
  row("recomputed tensors kept", wrong);
  report.chart(std::move(chart));
  const std::int64_t held = saved_bytes(wrong, Moment::after_forward);
  report.claim(
      held == saved_bytes(right, Moment::after_forward) && right.peak_bytes < wrong.peak_bytes,
      "After the forward all is as it should be, {} bytes instead of {}. In the backward segment "
      "after segment comes back and stays: the peak is {} bytes, where {} are enough and the plain "
      "run takes {}.",
      grouped(held), grouped(saved_bytes(plain, Moment::after_forward)), grouped(wrong.peak_bytes),
      grouped(right.peak_bytes), grouped(plain.peak_bytes));
  claim_law_finds(c, keeps, "what is left", "bytes-after-backward", report);
}

}  // namespace rematch::scenarios::memory_never_freed_story
