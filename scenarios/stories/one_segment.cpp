#include <fmt/format.h>

#include "properties/output/terminal.h"
#include "scenarios/support/judging.h"

namespace rematch::scenarios::one_segment_story {
namespace {

using cli::grouped;

constexpr int kLayers = 8;

Case cut(int segments, bool last_stored) {
  Case c;
  c.seed = 4;
  c.input = {16, 64};
  LayerSpec layer;
  layer.kind = layer_kind("tanh");
  c.layers.assign(kLayers, layer);
  c.protocol.input_requires_grad = true;
  c.plan.sequential = SequentialSpec{segments, last_stored, {}};
  return c;
}

/// Bytes that the graph holds between forward and backward, and runs of all layers in the step.
struct Cost {
  std::int64_t saved = 0;
  int runs = 0;
};

Cost cost_of(const Case& c, bool checkpointed) {
  const Record record = record_of(c, checkpointed);
  Cost cost{saved_bytes(record, Moment::after_forward), 0};
  for (const ExecutionCount& e : record.executions) cost.runs += e.count;
  return cost;
}

}  // namespace

void run(const Options& /*options*/, Report& report) {
  const Cost plain = cost_of(cut(1, true), false);
  report.say("{} layers tanh on float32 [16, 64], cut by `checkpoint_sequential`.", kLayers);
  Table& table =
      report.table("Bytes held between forward and backward, and layer runs in a step",
                   {"segments", "bytes, last stored", "runs", "bytes, last checkpointed", "runs"});
  Chart chart = bars("Bytes held between forward and backward", "segments", "bytes",
                     {"last segment stored", "last segment checkpointed"});
  const auto row = [&](const std::string& name, const Cost& stored, const Cost& checkpointed) {
    table.row(
        {name, grouped(stored.saved), stored.runs, grouped(checkpointed.saved), checkpointed.runs});
    add_bars(chart, name,
             {static_cast<double>(stored.saved), static_cast<double>(checkpointed.saved)});
  };
  row("plain", plain, plain);
  Cost stored[kLayers + 1];
  Cost checkpointed[kLayers + 1];
  for (const int k : {1, 2, 4, 8}) {
    stored[k] = cost_of(cut(k, true), true);
    checkpointed[k] = cost_of(cut(k, false), true);
    row(std::to_string(k), stored[k], checkpointed[k]);
  }
  report.chart(std::move(chart));
  report.claim(stored[1].saved == plain.saved && stored[1].runs == plain.runs,
               "With one segment it is the plain run: {} bytes and {} layer runs either way. The "
               "only segment is the last, and the last is stored.",
               grouped(stored[1].saved), stored[1].runs);
  report.claim(stored[2].saved < plain.saved && checkpointed[1].saved < plain.saved,
               "Two segments hold {} bytes; one segment with `LastSegment::checkpointed` holds {}.",
               grouped(stored[2].saved), grouped(checkpointed[1].saved));
  // The forecast knows: one segment, everything stored.
  claim_law_finds(
      cut(1, true), "P3",
      "an engine that checkpoints the only segment after all (the gradients are the same)",
      "last-segment", report);
}

}  // namespace rematch::scenarios::one_segment_story
