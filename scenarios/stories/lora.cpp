#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/nn/optimizer.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/linear.h"
#include "engine/ops/loss.h"
#include "properties/output/terminal.h"
#include "scenarios/support/judging.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::lora_story {
namespace {

using cli::grouped;

constexpr int kBlocks = 4;
constexpr int kSteps = 40;
constexpr std::int64_t kRows = 64;
constexpr std::int64_t kWidth = 32;
constexpr std::int64_t kHidden = 128;
constexpr std::int64_t kRank = 4;

enum class Trained { adapters, everything, nothing };

/// A linear layer and, beside it, two thin ones, whose product is added to it.
struct Adapted {
  Tensor base;
  Tensor down;  ///< A: random.
  Tensor up;    ///< B: zeros, so that training begins with the base model.

  Tensor operator()(const Tensor& x) const {
    const Tensor y = linear(x, base);
    return down.defined() ? add(y, linear(linear(x, down), up)) : y;
  }
};

/// Blocks of two linear layers with a SiLU between them and a skip beside them, which take the
/// embedding's output, and a frozen head.
struct Model {
  std::vector<Function> blocks;
  Tensor head;
  Tensors trained;  ///< A and B of each adapter in turn.

  explicit Model(Trained what) {
    Generator g{178, 0, 0};
    for (int b = 0; b < kBlocks; ++b) {
      const Adapted first = adapted(kWidth, kHidden, what, g);
      const Adapted second = adapted(kHidden, kWidth, what, g);
      blocks.emplace_back(
          [=](const Tensors& x) -> Tensors { return {add(x[0], second(silu(first(x[0]))))}; });
    }
    head = weight({kWidth, kWidth}, g).set_requires_grad(false);
  }

  static Tensor weight(const Shape& shape, Generator& g) {
    return uniform_parameter(shape, 1 / std::sqrt(static_cast<double>(shape[1])), g);
  }

  Adapted adapted(std::int64_t in, std::int64_t out, Trained what, Generator& g) {
    Adapted layer{weight({out, in}, g), {}, {}};
    if (what == Trained::everything) trained.push_back(layer.base);
    if (what != Trained::everything) layer.base.set_requires_grad(false);
    if (what != Trained::adapters) return layer;
    layer.down = weight({kRank, in}, g);
    layer.up = Tensor::zeros({out, kRank}, DType::float32, Tag::parameters);
    layer.up.set_requires_grad(true);
    trained.insert(trained.end(), {layer.down, layer.up});
    return layer;
  }
};

/// How a model is run.
struct Way {
  std::string name = {};
  std::size_t checkpointed = 0;  ///< So many blocks, the first ones.
  bool reentrant = false;
  /// The embedding's output is made to require grad.
  bool input = false;
};

struct Outcome {
  std::vector<double> losses;
  int zero_gradients[2] = {};   ///< Counts for A and B, in the first step.
  std::vector<double> norms;    ///< Norms of each block's B after the last step.
  std::vector<std::byte> bits;  ///< All trained parameters.
  std::int64_t kept = 0;        ///< After the first forward, beside parameters, input and target.
  std::int64_t peak = 0;        ///< The same at its highest moment, in the first step.
  std::int64_t gradients = 0;   ///< Bytes of all gradients.
  std::string error;            ///< Message of backward()'s error.
};

double norm_of(std::span<const Tensor> tensors) {
  double squares = 0;
  for (const Tensor& t : tensors) {
    if (!t.defined()) continue;
    for (const double v : t.to_vector()) squares += v * v;
  }
  return std::sqrt(squares);
}

Outcome train(const Way& way, Trained what = Trained::adapters, int steps = kSteps) {
  Outcome outcome;
  const auto ledger = std::make_shared<Ledger>();
  const AmbientScope scope(ledger);
  const Model model(what);
  Generator data{5963, 0, 0};
  Tensor x = normal_input({kRows, kWidth}, data).set_requires_grad(way.input);
  const Tensor target = normal_input({kRows, kWidth}, data);
  nn::Adam optimizer(model.trained, 0.01);
  const std::int64_t before = ledger->live();
  const CheckpointOptions options{.reentrant = way.reentrant};
  std::vector<Region> regions;
  for (std::size_t b = 0; b < way.checkpointed; ++b) regions.push_back({b, b + 1});
  for (int step = 0; step < steps; ++step) {
    const Tensor loss =
        mse_loss(linear(run_regions(model.blocks, regions, x, options), model.head), target);
    outcome.losses.push_back(loss.item());
    if (step == 0) outcome.kept = ledger->live() - before;
    outcome.error = error_of<std::invalid_argument>([&] { backward(loss); });
    if (step == 0) {
      outcome.peak = ledger->peak() - before;
      for (std::size_t i = 0; i < model.trained.size(); ++i) {
        const Tensor& g = model.trained[i].grad();
        if (g.defined() && norm_of(std::span(&g, 1)) == 0) ++outcome.zero_gradients[i % 2];
      }
    }
    optimizer.step();
    optimizer.zero_grad();
    x.set_grad({});
  }
  if (what == Trained::adapters) {
    for (std::size_t i = 0; i < model.trained.size(); i += 4) {
      outcome.norms.push_back(norm_of(Tensors{model.trained[i + 1], model.trained[i + 3]}));
    }
  }
  outcome.bits = bits_of(model.trained);
  outcome.gradients = static_cast<std::int64_t>(outcome.bits.size());
  return outcome;
}

void what_trains(Report& report) {
  const std::vector<Way> ways{
      {"plain", 0, false, false},
      {"every block, non-reentrant", kBlocks, false, false},
      {"every block, reentrant", kBlocks, true, false},
      {"the first two blocks, reentrant", 2, true, false},
      {"the same, and the embedding's output requires grad", 2, true, true},
      {"every block, reentrant, and it requires grad", kBlocks, true, true},
  };
  Table& table = report.table(
      fmt::format("{} steps: the loss, and how far the B of each block is from zero", kSteps),
      {"checkpointed", "first loss", "last loss", "block 0", "1", "2", "3"});
  std::vector<Outcome> outcomes;
  for (const Way& way : ways) {
    outcomes.push_back(train(way));
    const Outcome& o = outcomes.back();
    std::vector<Cell> cells{way.name, fmt::format("{:.4f}", o.losses.front()),
                            fmt::format("{:.4f}", o.losses.back())};
    for (const double norm : o.norms) cells.emplace_back(fmt::format("{:.3f}", norm));
    table.row(cells);
  }
  const Outcome& plain = outcomes[0];
  const Outcome& all = outcomes[2];
  const Outcome& part = outcomes[3];
  report.claim(!all.error.empty() && all.losses.front() == all.losses.back() && part.error.empty(),
               "With reentrant checkpoints around every block the loss requires no grad, and "
               "backward() raises an error: `" +
                   all.error + "`. That is noticed.");
  const auto falls = [](const Outcome& o) {
    return std::adjacent_find(o.losses.begin(), o.losses.end(), std::less_equal<>()) ==
           o.losses.end();
  };
  report.claim(falls(part) && falls(plain) && part.norms[0] == 0 && part.norms[1] == 0 &&
                   part.norms[2] > 0 && part.norms[3] > 0,
               "With them around the first two blocks alone (Megatron's `recompute_method=block`), "
               "it is not. The loss falls in each of {} steps, as it should, but to {:.4f} instead "
               "of {:.4f}: the later adapters train. B of the first two blocks is still zero, so "
               "these blocks are still the base model's.",
               kSteps, part.losses.back(), plain.losses.back());
  const auto same = [&](const Outcome& o) {
    return o.losses == plain.losses && o.bits == plain.bits;
  };
  report.claim(same(outcomes[1]) && same(outcomes[4]) && same(outcomes[5]),
               "Non-reentrant, or with an embedding output that requires grad (what "
               "`enable_input_require_grads()` sees to), all adapters are the plain run's after "
               "the last step, to the bit.");
  // B is zeros, so A has a gradient of zeros in the first step.
  report.claim(plain.zero_gradients[0] == 2 * kBlocks && plain.zero_gradients[1] == 0,
               "Look at B, after one step. A is no sign: while B is zero its gradient is zero, in "
               "a correct run too, in {} of {} adapters here.",
               plain.zero_gradients[0], 2 * kBlocks);
}

void bytes(Report& report) {
  const auto run = [](const Way& way, Trained what) { return train(way, what, 1); };
  const std::pair<std::string, Outcome> rows[] = {
      {"everything", run({}, Trained::everything)},
      {"adapters", run({}, Trained::adapters)},
      {"the embedding's output alone", run({.input = true}, Trained::nothing)},
      {"adapters, every block checkpointed", run({.checkpointed = kBlocks}, Trained::adapters)},
      {"the same, and the embedding's output",
       run({.checkpointed = kBlocks, .input = true}, Trained::adapters)},
  };
  report.say(
      "**Bytes.** A linear layer keeps its input for its weight's gradient. A frozen one does not, "
      "but the adapter beside it does, for A.");
  Table& table = report.table(
      "Bytes of the first step, beside parameters, input and target",
      {"what gets gradients", "kept after the forward", "peak", "parameters' gradients"});
  Chart chart = bars("Bytes of a step of LoRA, in KiB", "what gets gradients", "KiB",
                     {"kept after the forward", "peak"});
  for (const auto& [name, o] : rows) {
    table.row({name, grouped(o.kept), grouped(o.peak), grouped(o.gradients)});
    add_bars(chart, name, {in_kib(o.kept), in_kib(o.peak)});
  }
  report.chart(std::move(chart));
  const Outcome& full = rows[0].second;
  const Outcome& adapters = rows[1].second;
  const Outcome& frozen = rows[2].second;
  const Outcome& checkpointed = rows[3].second;
  const Outcome& required = rows[4].second;
  constexpr std::int64_t kAdapters = 2 * kBlocks;
  constexpr std::int64_t kNumber = sizeof(float);
  // The first block's input is the model's.
  constexpr std::int64_t kInputs = kRows * (kBlocks * kHidden + (kBlocks - 1) * kWidth) * kNumber;
  constexpr std::int64_t kThin = kAdapters * kRows * kRank * kNumber;
  report.claim(
      adapters.kept == frozen.kept + kInputs + kThin && adapters.kept == full.kept + kThin,
      "Adapters save no activations. A frozen base alone keeps {} bytes, those of its SiLUs and of "
      "the loss. Adapters bring back the inputs of all linear layers, {} bytes, and add A x for "
      "B's gradient: {} bytes more than where everything is trained.",
      grouped(frozen.kept), grouped(kInputs), grouped(kThin));
  report.claim(
      full.gradients > 6 * adapters.gradients,
      "What they save is gradients, {} bytes instead of {}, and twice that in Adam's state.",
      grouped(adapters.gradients), grouped(full.gradients));
  report.claim(checkpointed.kept == kBlocks * kRows * kWidth * kNumber + kNumber &&
                   required.kept == checkpointed.kept && required.peak == checkpointed.peak,
               "Activations are what checkpointing saves: it leaves {} bytes, one value for each "
               "block and the loss. That the embedding's output requires grad costs nothing on "
               "top, after the forward or at the peak.",
               grouped(checkpointed.kept));
}

/// The first block is checkpointed. Adapters stand behind frozen layers here.
Case two_blocks() {
  return case_from_json(R"({"format": 1, "seed": 178, "input": [8, 8], "layers": [
    {"kind": "linear", "features": 8, "frozen": true},
    {"kind": "linear", "features": 2, "bias": false},
    {"kind": "linear", "features": 8, "bias": false}, {"kind": "add", "from": [0, 0]},
    {"kind": "linear", "features": 8, "frozen": true},
    {"kind": "linear", "features": 2, "bias": false},
    {"kind": "linear", "features": 8, "bias": false}, {"kind": "add", "from": [4, 0]}],
    "plan": {"segments": [{"begin": 0, "end": 4, "variant": "reentrant"}]},
    "protocol": {"steps": 3, "input_requires_grad": true}})");
}

}  // namespace

void run(const Options& /*options*/, Report& report) {
  report.say(
      "{} blocks of a {} wide and a {} wide linear layer, frozen. Beside each stand two thin ones, "
      "B and A, of rank {}: y = W x + B (A x), where B begins as zeros. {} rows from a frozen "
      "embedding, a frozen head, a mean square error, Adam on the adapters.",
      kBlocks, kHidden, kWidth, kRank, kRows);
  what_trains(report);
  bytes(report);
  // A list of names that does not know this adapter: the hook on the embedding is not set.
  EngineSubject skipped([](const Function& f, const Tensors& in, const CheckpointOptions& options) {
    Tensors given;
    for (const Tensor& t : in) given.push_back(t.detach());
    return checkpoint(f, given, options);
  });
  claim_law_finds(two_blocks(), skipped,
                  "a library that should make the first block's input require grad, and does not",
                  "absent-gradients", report);
}

}  // namespace rematch::scenarios::lora_story
