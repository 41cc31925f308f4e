#include <fmt/format.h>

#include <algorithm>

#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/attention.h"
#include "engine/ops/join.h"
#include "engine/ops/linear.h"
#include "engine/ops/rms_norm.h"
#include "properties/output/terminal.h"
#include "scenarios/report/scenario.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::transformer_block_story {
namespace {

using cli::grouped;

constexpr int kBlocks = 4;
constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kWidth = 32;
constexpr std::int64_t kHeads = 4;
/// Bytes of a value between two parts.
constexpr std::int64_t kValue = kBatch * kTokens * kWidth * 4;

/// Checkpointed regions: a region is a number of parts, two of which are a block.
struct Choice {
  std::string name;
  bool fused = true;
  std::vector<Region> regions;
  Policy policy = nullptr;
};

/// Attention and a gated MLP, each behind a norm and beside a skip, four times.
struct Transformer {
  std::vector<Function> parts;
  Tensors parameters;

  explicit Transformer(bool fused) {
    Generator g{4, 0, 0};
    for (int b = 0; b < kBlocks; ++b) {
      const Tensor norm = weight({kWidth}, g);
      const Tensor in = weight({3 * kWidth, kWidth}, g);
      const Tensor out = weight({kWidth, kWidth}, g);
      parts.emplace_back([=](const Tensors& x) -> Tensors {
        const auto [q, memory] = split(linear(rms_norm(x[0], norm), in), kWidth, 2);
        const AttentionOptions options{.heads = kHeads, .causal = true, .fused = fused};
        return {add(x[0], linear(attention(q, memory, options), out))};
      });
      const Tensor second = weight({kWidth}, g);
      const Tensor up = weight({8 * kWidth, kWidth}, g);
      const Tensor down = weight({kWidth, 4 * kWidth}, g);
      parts.emplace_back([=](const Tensors& x) -> Tensors {
        const auto [gate, value] = split(linear(rms_norm(x[0], second), up), 4 * kWidth, 2);
        return {add(x[0], linear(mul(silu(gate), value), down))};
      });
    }
  }

  Tensor weight(const Shape& shape, Generator& g) {
    parameters.push_back(uniform_parameter(shape, 0.2, g));
    return parameters.back();
  }
};

struct Step {
  std::int64_t kept = 0;  ///< After the forward, beside parameters and input.
  std::int64_t peak = 0;  ///< The same, at the step's highest moment.
  int again = 0;          ///< Parts that ran a second time.
  Values values;
};

Step train_step(const Choice& choice) {
  Step step;
  const auto ledger = std::make_shared<Ledger>();
  const AmbientScope scope(ledger);
  const Transformer model(choice.fused);
  std::vector<int> order;
  const std::vector<Function> parts = counting(model.parts, order);
  Generator data{5, 0, 0};
  const Tensor x = normal_input({kBatch, kTokens, kWidth}, data);
  const std::int64_t before = ledger->live();
  Tensor y = run_regions(parts, choice.regions, x, {.early_stop = false, .policy = choice.policy});
  step.kept = ledger->live() - before;
  const Tensor loss = sum(mul(y, y));
  y = Tensor();
  backward(loss);
  step.peak = ledger->peak() - before;
  step.again = static_cast<int>(order.size()) - 2 * kBlocks;
  step.values = {loss.item(), bits_of(gradients_of(model.parameters))};
  return step;
}

std::vector<Choice> choices() {
  std::vector<Region> every, other, attention_parts, mlp_parts;
  for (std::size_t part = 0; part < 2 * kBlocks; part += 2) {
    every.push_back({part, part + 2});
    if (part % 4 == 0) other.push_back({part, part + 2});
    attention_parts.push_back({part, part + 1});
    mlp_parts.push_back({part + 1, part + 2});
  }
  const Policy products = [](const OpInstance& op) {
    return op.op == "linear" || op.op == "attention" ? Keep::must_save : Keep::must_recompute;
  };
  return {{"nothing, probabilities kept", false, {}},
          {"attention alone, probabilities kept", false, attention_parts},
          {"nothing", true, {}},
          {"attention alone", true, attention_parts},
          {"the MLP alone", true, mlp_parts},
          {"every other block", true, other},
          {"every block", true, every},
          {"every block, but products and attention", true, every, products}};
}

}  // namespace

void run(const Options& /*options*/, Report& report) {
  report.say(
      "{} blocks of width {}: a norm, queries, keys and values from one product, causal attention "
      "with {} heads, a product, a skip; a norm, a gated MLP four times as wide, a skip. A batch "
      "of {} with {} tokens each, in float32. Fused attention keeps a number for each row of "
      "scores where the other keeps the row; both are the same op here, and a step is a forward, a "
      "sum of squares and a backward. Bytes are those beside parameters and input.",
      kBlocks, kWidth, kHeads, kBatch, kTokens);
  Table& table = report.table("What is kept after the forward, and at the highest moment",
                              {"checkpointed", "attention", "kept", "peak", "parts run again"});
  Chart chart = bars("Bytes of a step, in KiB", "what is checkpointed", "KiB",
                     {"kept after the forward", "peak"});
  std::vector<Step> steps;
  for (const Choice& choice : choices()) {
    steps.push_back(train_step(choice));
    const Step& s = steps.back();
    table.row({choice.name, choice.fused ? "fused" : "not fused", grouped(s.kept), grouped(s.peak),
               s.again});
    add_bars(chart, choice.name, {in_kib(s.kept), in_kib(s.peak)});
  }
  report.chart(std::move(chart));
  const Step& unfused = steps[0];
  const Step& fused = steps[2];
  const std::int64_t rows = kBlocks * kBatch * kHeads * kTokens * 4;
  report.claim(unfused.kept - fused.kept == rows * (kTokens - 1),
               "Fused attention keeps {} bytes less: one number per row of scores instead of {}, "
               "to the byte. These bytes grow as the square of the tokens.",
               grouped(unfused.kept - fused.kept), kTokens);
  report.claim(
      steps[1].kept == steps[3].kept && unfused.kept - fused.kept > fused.kept - steps[3].kept,
      "Attention recomputed leaves {} bytes, fused or not. Most of what that frees where "
      "probabilities are kept, fusing frees already, and runs no part again: its backward computes "
      "the scores once more.",
      grouped(steps[1].kept));
  report.claim(fused.kept - steps[4].kept > 2 * (fused.kept - steps[3].kept) &&
                   2 * (fused.kept - steps[4].kept) > fused.kept,
               "Most of a block's bytes are the MLP's, four times as wide and gated: recomputing "
               "it frees more than twice of what recomputing fused attention does.");
  report.claim(steps[6].kept == kBlocks * kValue,
               "With every block checkpointed, what is left is {} values between blocks of {} "
               "bytes each, the output among them; the input was there.",
               kBlocks, grouped(kValue));
  report.claim(2 * (fused.kept - steps[5].kept) == fused.kept - steps[6].kept,
               "Every other block frees exactly half of what every block does.");
  report.claim(2 * steps[7].kept > fused.kept && steps[7].kept < fused.kept,
               "A policy that keeps what is expensive to compute, products and attention, keeps "
               "most of the bytes: most of what a transformer saves is one of these.");
  const bool same = std::all_of(steps.begin() + 3, steps.end(),
                                [&](const Step& s) { return s.values == fused.values; });
  report.claim(same && steps[1].values == unfused.values,
               "Loss and gradients are the same to the bit in every row of one attention.");
}

}  // namespace rematch::scenarios::transformer_block_story
