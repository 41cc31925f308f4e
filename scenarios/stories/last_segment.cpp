// Why is the last segment stored?
#include <fmt/format.h>

#include <algorithm>

#include "engine/checkpoint/sequential.h"
#include "engine/ops/activation.h"
#include "engine/ops/loss.h"
#include "properties/output/terminal.h"
#include "scenarios/report/scenario.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::last_segment_story {
namespace {

/// Layers tanh(W x + b) of one width, so that each leaves one activation of rows * width floats.
struct Net {
  int layers = 12;
  std::int64_t rows = 512;
  std::int64_t width = 64;
  bool input_requires_grad = true;

  std::int64_t activation_bytes() const { return rows * width * 4; }
};

/// The computation between the sequential part and the loss: more of the same layers, then one
/// layer to `wide` features and back.
struct Head {
  int layers = 0;
  std::int64_t wide = 0;
};

struct How {
  /// 0: nothing is checkpointed.
  int segments = 0;
  LastSegment last = LastSegment::stored;
  bool reentrant = false;
  /// The caller holds the output of the sequential part until the backward is over.
  bool output_kept = false;
};

/// One forward, loss (mean square) and backward. Bytes are those beyond parameters, input and
/// target.
struct Step {
  /// Layers in the order in which they ran.
  std::vector<int> order;
  /// Whether the output of each layer is alive when the sequential part is over.
  std::vector<bool> alive;
  std::int64_t after_sequential = 0;
  /// Highest from the end of the sequential part to the moment at which the gradient arrives back
  /// at it: while the head and the loss compute.
  std::int64_t head_peak = 0;
  std::int64_t peak = 0;
  /// Bytes alive after each allocation and release.
  std::vector<std::int64_t> live;
  Values values;
  /// Layers of the net whose weight has a gradient.
  int trained = 0;

  int runs() const { return static_cast<int>(order.size()); }
};

Tensor made_input(const Net& net, Generator& generator) {
  Tensor t = Tensor::empty({net.rows, net.width}, DType::float32, Tag::inputs);
  nn::fill_uniform(t, 1, generator);
  return t;
}

/// The functions of the net; each leaves a weak pointer to what it returned in its first run.
std::vector<Function> functions_of(const std::vector<ModulePtr>& layers,
                                   std::vector<std::weak_ptr<Storage>>& outputs) {
  std::vector<Function> functions;
  outputs.resize(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    functions.emplace_back([layer = layers[i], &output = outputs[i]](const Tensors& in) {
      const Tensor y = tanh(layer->forward(in[0]));
      if (!ambient().recomputing) output = y.storage();
      return Tensors{y};
    });
  }
  return functions;
}

Tensor sequential_part(std::span<const Function> functions, const How& how, const Tensor& x) {
  const CheckpointOptions options{.reentrant = how.reentrant};
  if (how.segments == 0) return run_regions(functions, {}, x);
  return checkpoint_sequential(functions, how.segments, {x}, how.last, options)[0];
}

/// Throws what the engine throws.
Step run(const Net& net, const Head& head, const How& how) {
  Step step;
  const auto ledger = std::make_shared<Ledger>();
  const AmbientScope scope(ledger, 1);
  Generator generator{1, 0, 0};
  std::vector<ModulePtr> layers(static_cast<std::size_t>(net.layers));
  std::vector<ModulePtr> behind(static_cast<std::size_t>(head.layers));
  for (std::vector<ModulePtr>* some : {&layers, &behind}) {
    for (ModulePtr& layer : *some) layer = linear_layer(net.width, net.width, generator);
  }
  if (head.wide > 0) {
    behind.push_back(linear_layer(net.width, head.wide, generator));
    behind.push_back(linear_layer(head.wide, net.width, generator));
  }
  const Tensor x = made_input(net, generator).set_requires_grad(net.input_requires_grad);
  const Tensor target = made_input(net, generator);
  std::vector<std::weak_ptr<Storage>> outputs;
  const std::vector<Function> functions = counting(functions_of(layers, outputs), step.order);

  const std::int64_t base = ledger->live();
  ledger->record_timeline(true);
  {
    Tensor y = sequential_part(functions, how, x);
    step.after_sequential = ledger->live() - base;
    for (const auto& output : outputs) step.alive.push_back(!output.expired());
    const std::size_t head_begins = ledger->timeline().size();
    std::size_t head_ends = head_begins;
    if (y.requires_grad()) {
      y.register_hook([&](const Tensor&) {
        head_ends = ledger->timeline().size();
        return Tensor();
      });
    }
    const Tensor kept = how.output_kept ? y : Tensor();
    for (const ModulePtr& layer : behind) y = tanh(layer->forward(y));
    const Tensor loss = mse_loss(y, target);
    y = Tensor();
    step.values.loss = loss.item();
    backward(loss);
    const auto& events = ledger->timeline();
    for (std::size_t i = 0; i < events.size(); ++i) {
      const std::int64_t live = events[i].live - base;
      step.peak = std::max(step.peak, live);
      if (i >= head_begins && i < head_ends) step.head_peak = std::max(step.head_peak, live);
      // A change of tag alone moves no byte.
      if (events[i].kind != LedgerEvent::Kind::retag) step.live.push_back(live);
    }
  }
  Tensors leaves{x};
  for (const ModulePtr& layer : layers) {
    step.trained += layer->parameters()[0].grad().defined() ? 1 : 0;
    leaves.insert(leaves.end(), layer->parameters().begin(), layer->parameters().end());
  }
  for (const ModulePtr& layer : behind) {
    leaves.insert(leaves.end(), layer->parameters().begin(), layer->parameters().end());
  }
  step.values.gradients = bits_of(gradients_of(leaves));
  return step;
}

using cli::grouped;

constexpr int kSegments = 3;
constexpr LastSegment kStored = LastSegment::stored;
constexpr LastSegment kCheckpointed = LastSegment::checkpointed;

/// Layers of the last segment.
int last_of(const Net& net) { return net.layers - net.layers / kSegments * (kSegments - 1); }

struct Pair {
  Step stored;
  Step checkpointed;
};

Pair run_both(const Net& net, const Head& head, bool reentrant, bool output_kept = false) {
  How how{.segments = kSegments, .reentrant = reentrant, .output_kept = output_kept};
  Pair pair;
  pair.stored = run(net, head, how);
  how.last = kCheckpointed;
  pair.checkpointed = run(net, head, how);
  return pair;
}

Chart live_bytes(std::string title, const Pair& pair) {
  const auto series = [](const char* name, const std::vector<std::int64_t>& live) {
    Series result{name, {}, {}};
    for (std::size_t i = 0; i < live.size(); ++i) {
      result.x.push_back(static_cast<double>(i));
      result.y.push_back(in_kib(live[i]));
    }
    return result;
  };
  return {.title = std::move(title),
          .x_label = "time, in allocations and releases",
          .y_label = "live, KiB",
          .kind = Chart::Kind::steps,
          .series = {series("last segment stored", pair.stored.live),
                     series("checkpointed", pair.checkpointed.live)}};
}

std::string alive_text(const std::vector<bool>& alive) {
  std::string text;
  for (const bool one : alive) text += one ? "●" : "·";
  return text;
}

void which_bytes_live(Report& report) {
  const Net net;
  const std::int64_t activation = net.activation_bytes();
  report.say(
      "`checkpoint_sequential(functions, segments, input)` cuts n layers into k segments of "
      "floor(n / k) layers; the last one takes the remainder too. PyTorch always stores the last "
      "segment. Here it can be checkpointed as well (`LastSegment::checkpointed`), so that both "
      "can be compared.");
  report.say(
      "From here on: {} layers tanh(Wx + b), {} segments of {}, float32 [{}, {}]. One layer's "
      "output is {} bytes, and those of layers 1 to {} are what a plain run keeps for backward. "
      "Counted are bytes beyond parameters, input and target.",
      net.layers, kSegments, net.layers / kSegments, net.rows, net.width, grouped(activation),
      net.layers);
  Table& table = report.table("Which outputs are alive after the forward of the sequential part",
                              {"run", "layers 1 to 12", "bytes alive"});
  const Step plain = run(net, {}, {});
  const Pair pair = run_both(net, {}, false);
  const auto add = [&](const char* name, const Step& step) {
    table.row({name, alive_text(step.alive), grouped(step.after_sequential)});
  };
  add("plain", plain);
  add("last segment stored", pair.stored);
  add("last segment checkpointed", pair.checkpointed);

  const int last = last_of(net);
  const auto interior_alive = [&](const Step& step) {
    return std::count(step.alive.end() - last, step.alive.end() - 1, true);
  };
  report.claim(interior_alive(pair.stored) == last - 1 && interior_alive(pair.checkpointed) == 0 &&
                   std::count(pair.stored.alive.begin(), pair.stored.alive.end() - last, true) ==
                       kSegments - 1,
               "\"All segments except the last will not store the intermediate activations\": true "
               "to the letter. Of each checkpointed segment nothing is alive but what the next one "
               "begins with; of the stored one, everything.");
}

void loss_right_behind(Report& report) {
  const Net net;
  report.say(
      "**(a) The loss comes right behind.** \"You're going to have to materialize every single "
      "activation in that chunk whether or not you checkpoint it, so might as well not do the "
      "extra recomputation.\"");
  Table& table = report.table("Peak of forward, loss and backward, in bytes",
                              {"variant", "caller keeps the output", "stored", "checkpointed",
                               "checkpointed costs", "extra layer runs"});
  Pair shown;
  bool equal = true;
  std::int64_t peak_by_kept[2] = {};
  bool never_lower = true, same_bits = true, same_runs = true;
  const Step plain = run(net, {}, {});
  for (const bool reentrant : {false, true}) {
    for (const bool kept : {false, true}) {
      const Pair pair = run_both(net, {}, reentrant, kept);
      const std::int64_t more = pair.checkpointed.peak - pair.stored.peak;
      const int extra = pair.checkpointed.runs() - pair.stored.runs();
      table.row({reentrant ? "reentrant" : "non-reentrant", yes(kept), grouped(pair.stored.peak),
                 grouped(pair.checkpointed.peak), grouped(more), extra});
      if (!reentrant) peak_by_kept[kept] = pair.checkpointed.peak;
      never_lower &= more >= 0;
      same_bits &= pair.stored.values == plain.values && pair.checkpointed.values == plain.values;
      same_runs &= extra == last_of(net);
      if (reentrant || kept) continue;
      equal = more == 0;
      shown = pair;
    }
  }
  report.claim(equal && never_lower && same_runs,
               "Here the answer in the thread is right: the peaks are equal to the byte, and {} "
               "layer runs were wasted. The reentrant variant even needs more, for its "
               "recomputation exists as a whole before its backward begins.",
               last_of(net));
  report.claim(peak_by_kept[1] - peak_by_kept[0] == net.activation_bytes(),
               "A caller who keeps the output until the backward is over, as training loops do, "
               "has it twice when the last segment is checkpointed, for the recomputation makes it "
               "once more: {} bytes on its peak.",
               grouped(net.activation_bytes()));
  report.claim(same_bits,
               "Loss and all gradients equal those of the plain run to the bit in all eight runs.");
  report.chart(live_bytes("(a) Loss right behind: live bytes during one step", shown));
}

std::string head_text(const Head& head) {
  if (head.wide > 0) return fmt::format("64 to {} features and back", head.wide);
  if (head.layers == 0) return "nothing";
  return head.layers == 1 ? "1 layer" : fmt::format("{} layers", head.layers);
}

void more_behind(const Options& options, Report& report) {
  const Net net;
  const int last = last_of(net);
  const std::int64_t interior = (last - 1) * net.activation_bytes();
  report.say(
      "**(b) More is computed behind it.** The stored segment's activations then lie idle while "
      "the later part computes, and that part's peak stands on top of them. It is true that the "
      "segment must be materialised once, but by then the later part has let go of its own.");
  Table& table = report.table(
      "Bytes while what follows computes, at the highest moment, and the peak of the whole step",
      {"behind the sequential part", "then: stored", "then: checkpointed", "peak: stored",
       "peak: checkpointed", "saved", "extra layer runs"});
  bool exact = true, same_runs = true, same_bits = true, whole_at_last = false;
  Pair shown;
  const Head kHeads[] = {{0, 0}, {1, 0}, {2, 0}, {4, 0}, {8, 0}, {12, 0}, {0, 1024}};
  for (const Head& head : kHeads) {
    if (options.stopped()) return;
    const Pair pair = run_both(net, head, false);
    const std::int64_t saved = pair.stored.peak - pair.checkpointed.peak;
    const int extra = pair.checkpointed.runs() - pair.stored.runs();
    table.row({head_text(head), grouped(pair.stored.head_peak),
               grouped(pair.checkpointed.head_peak), grouped(pair.stored.peak),
               grouped(pair.checkpointed.peak), grouped(saved), extra});
    exact &= pair.stored.head_peak - pair.checkpointed.head_peak == interior;
    same_runs &= extra == last;
    same_bits &= pair.stored.values == pair.checkpointed.values;
    whole_at_last = saved == interior;
    if (head.layers == 12) shown = pair;
  }
  report.claim(exact,
               "While anything is computed behind it, the stored last segment costs exactly its {} "
               "inner outputs, {} bytes, whatever follows.",
               last - 1, grouped(interior));
  report.claim(
      whole_at_last && same_runs && same_bits,
      "So there the answer in the thread fails: with enough behind it the peak of the whole step "
      "falls by those {} bytes, for {} layer runs and not one bit of difference.",
      grouped(interior), last);
  report.chart(live_bytes("(b) Twelve layers behind it: live bytes during one step", shown));
}

void break_even(const Options& options, Report& report) {
  const Net net;
  constexpr int kMost = 10;
  Chart chart = lines("Where it begins to pay: peak of a step over what follows",
                      "layers between the sequential part and the loss", "peak, KiB",
                      {"stored", "checkpointed", "checkpointed, reentrant"});
  int first[] = {-1, -1};
  for (int layers = 0; layers <= kMost; ++layers) {
    if (options.stopped()) return;
    const Pair pairs[] = {run_both(net, {layers, 0}, false), run_both(net, {layers, 0}, true)};
    const Step* const steps[] = {&pairs[0].stored, &pairs[0].checkpointed, &pairs[1].checkpointed};
    for (std::size_t i = 0; i < 3; ++i) {
      chart.series[i].x.push_back(layers);
      chart.series[i].y.push_back(in_kib(steps[i]->peak));
    }
    for (std::size_t i = 0; i < 2; ++i) {
      if (first[i] < 0 && pairs[i].checkpointed.peak < pairs[i].stored.peak) first[i] = layers;
    }
  }
  report.chart(std::move(chart));
  report.claim(first[0] == 1 && first[1] == 2,
               "A single layer behind the sequential part is enough for a checkpointed last "
               "segment to lower the peak; with the reentrant variant it takes two.");
}

std::string what_backward_says(const How& how) {
  Net net;
  net.input_requires_grad = false;
  try {
    return fmt::format("{} of {} layers get a gradient", run(net, {}, how).trained, net.layers);
  } catch (const std::invalid_argument& e) {
    return fmt::format("refused: {}", e.what());
  }
}

void imperative_or_design(Report& report) {
  report.say(
      "**Imperative or design?** The comment in the source says that \"the last chunk has to be "
      "non-volatile\". A volatile result was one without a history. It does not have to: the bits "
      "above are those of the plain run.");
  Table& table = report.table("Backward when the input does not require grad",
                              {"variant", "last segment stored", "last segment checkpointed"});
  const std::string says[2][2] = {{what_backward_says({kSegments, kStored, false}),
                                   what_backward_says({kSegments, kCheckpointed, false})},
                                  {what_backward_says({kSegments, kStored, true}),
                                   what_backward_says({kSegments, kCheckpointed, true})}};
  table.row({"non-reentrant", says[0][0], says[0][1]});
  table.row({"reentrant", says[1][0], says[1][1]});
  report.claim(says[0][0] == says[0][1] && says[0][0] == "12 of 12 layers get a gradient" &&
                   says[1][0] == "4 of 12 layers get a gradient" &&
                   says[1][1].starts_with("refused: "),
               "In one case the comment has a point: with the reentrant variant and an input that "
               "does not require grad no checkpointed segment records a history. A stored last "
               "segment then trains alone, and hides that the others are frozen; a checkpointed "
               "one leaves backward nothing to walk.");
}

void what_to_choose(Report& report) {
  report.say(
      "**What to choose.** Loss right behind, as in a classifier whose head is part of the "
      "sequence: leave the last segment stored. Anything behind it whose activations weigh as much "
      "as one layer of the segment (a decoder, a large head, a second branch): checkpoint it too, "
      "and let the last segment be as short as the others, since the remainder of n / k goes "
      "there. With a library that always stores the last segment: call `checkpoint` for each "
      "segment yourself.");
}

}  // namespace

void run(const Options& options, Report& report) {
  which_bytes_live(report);
  loss_right_behind(report);
  more_behind(options, report);
  break_even(options, report);
  imperative_or_design(report);
  what_to_choose(report);
}

}  // namespace rematch::scenarios::last_segment_story
