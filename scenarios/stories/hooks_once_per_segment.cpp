#include <fmt/format.h>

#include "scenarios/support/judging.h"

namespace rematch::scenarios::hooks_once_per_segment_story {
namespace {

/// Linear layers that share their weight, each a segment.
Case tied_layers(int uses, Variant variant) {
  Case c;
  c.seed = 81296;
  c.input = {4, 8};
  for (int i = 0; i < uses; ++i) {
    LayerSpec layer;
    layer.kind = layer_kind("linear");
    layer.features = 8;
    layer.tied_to = i == 0 ? -1 : 0;
    c.layers.push_back(layer);
    add_segment(c, i, i + 1, variant);
  }
  c.protocol.input_requires_grad = true;
  return c;
}

/// Firings of the weight's hook in one backward.
int firings(const Case& c, bool checkpointed) {
  return record_of(c, checkpointed).hooks.at(0).count;
}

}  // namespace

void run(const Options& /*options*/, Report& report) {
  report.say(
      "One weight, used by k segments that are checkpointed each, and a hook on its gradient. Data "
      "parallelism hangs such a hook on every parameter, to send its gradient off when it is "
      "ready.");
  Table& table = report.table("Firings of the weight's hook in one backward",
                              {"segments that use it", "plain", "reentrant", "non-reentrant"});
  Chart chart = bars("Firings of one weight's hook in one backward", "segments that use the weight",
                     "firings", {"plain", "reentrant", "non-reentrant"});
  bool k_times = true, once = true;
  for (const int uses : {1, 2, 3, 6}) {
    const Case non_reentrant = tied_layers(uses, Variant::non_reentrant);
    const int counts[] = {firings(non_reentrant, false),
                          firings(tied_layers(uses, Variant::reentrant), true),
                          firings(non_reentrant, true)};
    table.row({uses, counts[0], counts[1], counts[2]});
    add_bars(chart, std::to_string(uses), {counts, counts + 3});
    k_times &= counts[1] == uses;
    once &= counts[0] == 1 && counts[2] == 1;
  }
  report.chart(std::move(chart));
  report.claim(k_times && once,
               "Plain and non-reentrant: once, when all contributions are summed. Reentrant: once "
               "for each of the k segments, because each recomputation is a backward of its own "
               "that accumulates into the weight by itself. A reducer that expects each parameter "
               "ready once refuses the second firing.");
  claim_law_finds(tied_layers(3, Variant::non_reentrant), "G9",
                  "the surplus firings where the non-reentrant variant was asked for", "hooks",
                  report);
}

}  // namespace rematch::scenarios::hooks_once_per_segment_story
