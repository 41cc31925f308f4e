#include <fmt/format.h>

#include "properties/case/json.h"
#include "properties/faults/fault.h"
#include "properties/output/terminal.h"
#include "properties/subjects/engine_subject.h"
#include "scenarios/report/scenario.h"
#include "scenarios/support/judging.h"

namespace rematch::scenarios::one_segment_story {
namespace {

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
  EngineSubject engine;
  const Record record = record_of(c, engine, checkpointed);
  Cost cost;
  for (const ByteReading& b : record.bytes) {
    if (b.moment == Moment::after_forward) cost.saved = b.saved;
  }
  for (const ExecutionCount& e : record.executions) cost.runs += e.count;
  return cost;
}

void run(const Options& /*options*/, Report& report) {
  const Cost plain = cost_of(cut(1, true), false);
  report.say(
      fmt::format("{} layers tanh on float32 [16, 64], cut by `checkpoint_sequential`.", kLayers));
  Table& table =
      report.table("Bytes held between forward and backward, and layer runs in a step",
                   {"segments", "bytes, last stored", "runs", "bytes, last checkpointed", "runs"});
  Chart chart{"Bytes held between forward and backward",
              "segments",
              "bytes",
              Chart::Kind::bars,
              {{"last segment stored", {}, {}}, {"last segment checkpointed", {}, {}}},
              {"plain"}};
  table.row({"plain", cli::grouped(plain.saved), std::to_string(plain.runs),
             cli::grouped(plain.saved), std::to_string(plain.runs)});
  for (Series& s : chart.series) s.y.push_back(static_cast<double>(plain.saved));
  Cost stored[kLayers + 1];
  Cost checkpointed[kLayers + 1];
  for (const int k : {1, 2, 4, 8}) {
    stored[k] = cost_of(cut(k, true), true);
    checkpointed[k] = cost_of(cut(k, false), true);
    table.row({std::to_string(k), cli::grouped(stored[k].saved), std::to_string(stored[k].runs),
               cli::grouped(checkpointed[k].saved), std::to_string(checkpointed[k].runs)});
    chart.categories.push_back(std::to_string(k));
    chart.series[0].y.push_back(static_cast<double>(stored[k].saved));
    chart.series[1].y.push_back(static_cast<double>(checkpointed[k].saved));
  }
  report.chart(std::move(chart));
  report.claim(
      stored[1].saved == plain.saved && stored[1].runs == plain.runs,
      fmt::format("With one segment it is the plain run: {} bytes and {} layer runs either "
                  "way. The only segment is the last, and the last is stored.",
                  cli::grouped(stored[1].saved), stored[1].runs));
  report.claim(stored[2].saved < plain.saved && checkpointed[1].saved < plain.saved,
               fmt::format("Two segments hold {} bytes; one segment with "
                           "`LastSegment::checkpointed` holds {}.",
                           cli::grouped(stored[2].saved), cli::grouped(checkpointed[1].saved)));
  // The forecast knows: one segment, everything stored.
  EngineSubject eager(find_fault("P3")->make);
  claim_law_finds(cut(1, true), eager,
                  "an engine that checkpoints the only segment after all (the gradients are the "
                  "same)",
                  "last-segment", report);
}

}  // namespace
}  // namespace rematch::scenarios::one_segment_story

namespace rematch::scenarios {

extern const Scenario one_segment;
const Scenario one_segment{
    "one_segment",
    "I call checkpoint_sequential with segments=1 and no memory is saved. Why?",
    "https://github.com/lucidrains/En-transformer/issues/4",
    "The last segment is stored, and with one segment the last is all there is: nothing is "
    "checkpointed, silently. Ask for two or more, or say that the last one is to be "
    "checkpointed as well.",
    one_segment_story::run,
    {"`checkpoint_sequential(model, 1, x)` is a plain run, without a warning. Ask for two segments "
     "or more, or checkpoint everything: `checkpoint(model, x, use_reentrant=False)`.",
     {{"PT2.one_segment", "runs", R"("111")"}, {"PT2.one_segment", "warnings", "[]"}}}};

}  // namespace rematch::scenarios
