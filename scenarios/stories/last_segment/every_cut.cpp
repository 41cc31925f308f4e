#include "scenarios/stories/last_segment/parts.h"

#include <fmt/format.h>

#include "scenarios/support/options.h"

namespace rematch::scenarios::sequential {
namespace {

constexpr int kMostLayers = 39;

/// Small enough for thousands of runs.
constexpr Net kSmall{.layers = 0, .rows = 4, .width = 2, .dropout = 0.5};

struct Formula {
  std::vector<int> order;
  std::int64_t activations = 0;
};

/// The call's promises: every segment but the last has floor(n / k) layers. Layers run in turn;
/// then the checkpointed segments run again, the last one first. Alive after the forward are the
/// inputs of segments 2 to k and what the last one keeps, of which its output is held by the loss.
Formula formula(int n, int k, LastSegment last) {
  const int size = n / k;
  const int begin_of_last = size * (k - 1);
  Formula f;
  for (int i = 0; i < n; ++i) f.order.push_back(i);
  for (int segment = k - 1; segment >= 0; --segment) {
    const bool is_last = segment == k - 1;
    if (is_last && last == LastSegment::stored) continue;
    for (int i = segment * size; i < (is_last ? n : (segment + 1) * size); ++i)
      f.order.push_back(i);
  }
  f.activations = k - 1 + (last == LastSegment::stored ? n - begin_of_last : 1);
  return f;
}

void try_cut(const Net& net, int k, bool reentrant, const Step& plain, EveryCut& every) {
  const int n = net.layers;
  How how{.segments = k, .reentrant = reentrant};
  const Step stored = run(net, {}, how);
  how.last = LastSegment::checkpointed;
  const Step checkpointed = run(net, {}, how);
  every.runs = every.runs && stored.order == formula(n, k, LastSegment::stored).order &&
               checkpointed.order == formula(n, k, LastSegment::checkpointed).order;
  every.bits = every.bits && stored.values == plain.values && checkpointed.values == plain.values;
  if (k > 1) {
    const Step excluded = run(net, {}, {.segments = k, .reentrant = reentrant, .excluded = true});
    every.excluded = every.excluded && excluded.live == stored.live &&
                     excluded.values == stored.values && excluded.order == stored.order;
  }
  if (n % k == 0) {
    const Step appended =
        run(net, {}, {.segments = k + 1, .reentrant = reentrant, .appended = n / k});
    every.appended = every.appended && appended.order == checkpointed.order &&
                     appended.live == checkpointed.live;
  }
}

void check_bytes(Net net, int k, bool reentrant, EveryCut& every) {
  net.dropout = 0;
  std::int64_t peaks[2] = {};
  for (const LastSegment last : {LastSegment::stored, LastSegment::checkpointed}) {
    const Step step = run(net, {}, {.segments = k, .last = last, .reentrant = reentrant});
    every.bytes = every.bytes && step.after_sequential == formula(net.layers, k, last).activations *
                                                              net.activation_bytes();
    peaks[last == LastSegment::checkpointed] = step.peak;
  }
  every.peaks = every.peaks && (reentrant ? peaks[1] >= peaks[0] : peaks[1] == peaks[0]);
}

/// "2 + 2 + 3", "13 x 1 + 2"
std::string sizes_text(int n, int k) {
  const int size = n / k;
  std::string last = std::to_string(n - size * (k - 1));
  if (k == 1) return last;
  if (k > 5) return fmt::format("{} x {}, then {}", k - 1, size, last);
  std::string text;
  for (int i = 0; i + 1 < k; ++i) text += fmt::format("{} + ", size);
  return text + last;
}

}  // namespace

EveryCut try_every_cut(const Options& options) {
  EveryCut every;
  Net net = kSmall;
  for (net.layers = 1; net.layers <= kMostLayers && !stopped(options); ++net.layers) {
    tell(options, fmt::format("every cut of {} layers", net.layers));
    const Step plain = run(net, {}, {});
    for (int k = 1; k <= net.layers; ++k) {
      ++every.cuts;
      for (const bool reentrant : {false, true}) {
        try_cut(net, k, reentrant, plain, every);
        check_bytes(net, k, reentrant, every);
      }
    }
  }
  return every;
}

void tell_cuts(const EveryCut& every, Report& report) {
  report.say(
      "`checkpoint_sequential(functions, segments, input)` cuts n layers into k segments of s = "
      "floor(n / k) layers; the last one takes the remainder too. PyTorch always stores the last "
      "segment. Here it can be checkpointed as well (`LastSegment::checkpointed`), so that both "
      "can be compared.");
  Table& table = report.table(
      "Layer runs of one step, and layer outputs alive after the forward",
      {"n", "k", "layers per segment", "runs: stored", "runs: checkpointed",
       "recomputed when stored", "alive: plain", "alive: stored", "alive: checkpointed"});
  const std::pair<int, int> kExtract[] = {{9, 1}, {7, 3},  {10, 4}, {4, 4},
                                          {5, 4}, {11, 6}, {12, 3}, {39, 20}};
  for (const auto& [n, k] : kExtract) {
    const Formula stored = formula(n, k, LastSegment::stored);
    const Formula checkpointed = formula(n, k, LastSegment::checkpointed);
    const auto runs = static_cast<int>(stored.order.size());
    table.row({std::to_string(n), std::to_string(k), sizes_text(n, k), std::to_string(runs),
               std::to_string(checkpointed.order.size()),
               fmt::format("{} of {} layers", runs - n, n), std::to_string(n),
               std::to_string(stored.activations), std::to_string(checkpointed.activations)});
  }
  report.claim(every.runs,
               "For all {} pairs 1 <= k <= n < 40 and both variants every layer runs as often, and "
               "in the order, that the formula says: s (k - 1) layers twice when the last segment "
               "is stored, all n when it is not, segments recomputed from last to first.",
               every.cuts);
  report.claim(every.bytes,
               "For all of them the bytes alive after the forward are those of the inputs of "
               "segments 2 to k and, stored, all outputs of the last segment, or, checkpointed, "
               "its output alone. With k = 1 a stored last segment means that nothing is "
               "checkpointed, silently, as users found out (lucidrains/En-transformer, issue 4).");
}

}  // namespace rematch::scenarios::sequential
