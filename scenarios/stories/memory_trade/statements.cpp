#include <fmt/format.h>

#include <set>

#include "engine/autograd/node.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "properties/output/terminal.h"
#include "scenarios/stories/memory_trade/parts.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::trade {
namespace {

using cli::grouped;

constexpr std::int64_t kSamples = 32;
constexpr std::int64_t kFeatures = 256;

template <class F>
concept CheckpointableWithoutInputs = requires(F f) {
  checkpoint(f);
};
template <class M>
concept ReplaceableByItsCheckpoint = requires(M layer, Function f, Tensors x) {
  layer = checkpoint(f, x);
};

Tensor input(Generator& generator) {
  return normal_input({kSamples, kFeatures}, generator).set_requires_grad(true);
}

struct OwnRun {
  std::int64_t kept = 0;
  std::vector<std::byte> bits;
};

enum class What { nothing, part, whole };

/// A user's own layer: normalises, then two products with gelu between, and a skip around it all.
OwnRun run_own(What checkpointed) {
  const auto ledger = std::make_shared<Ledger>();
  const AmbientScope scope(ledger);
  Generator generator{9, 0, 0};
  nn::LayerNorm norm(kFeatures);
  nn::Sequential inner({linear_layer(kFeatures, 2 * kFeatures, generator),
                        activation(nn::ActivationKind::gelu),
                        linear_layer(2 * kFeatures, kFeatures, generator)});
  const Function part = [&](const Tensors& in) -> Tensors { return {inner(in[0])}; };
  const Function whole = [&](const Tensors& in) -> Tensors {
    const Tensors normed{norm(in[0])};
    return {add(in[0], (checkpointed == What::part ? checkpoint(part, normed) : part(normed))[0])};
  };
  const Tensor x = input(generator);
  const std::int64_t before = ledger->live();
  const Tensor loss = sum((checkpointed == What::whole ? checkpoint(whole, {x}) : whole({x}))[0]);
  OwnRun result{ledger->live() - before - loss.bytes(), {}};
  backward(loss);
  Tensors leaves{x};
  leaves.insert(leaves.end(), norm.parameters().begin(), norm.parameters().end());
  leaves.insert(leaves.end(), inner.parameters().begin(), inner.parameters().end());
  result.bits = bits_of(gradients_of(leaves));
  return result;
}

int nodes_behind(const Tensor& root) {
  std::set<const Node*> seen;
  std::vector<std::shared_ptr<Node>> open{root.grad_fn()};
  while (!open.empty()) {
    const std::shared_ptr<Node> node = open.back();
    open.pop_back();
    if (!node || node->edges.empty() || !seen.insert(node.get()).second) continue;
    for (const Edge& edge : node->edges) open.push_back(edge.node);
  }
  return static_cast<int>(seen.size());
}

/// Three layers, as one function.
Tensors three_layers(const Tensors& in) {
  return {rematch::tanh(rematch::tanh(rematch::tanh(in[0])))};
}

struct Mechanism {
  int nodes = 0;
  std::string last_node;
  std::int64_t kept = 0;
  int runs_before_backward = 0;
  int runs = 0;
};

/// `options`: of the checkpoint around the layers; nullptr: none.
Mechanism mechanism_of(const CheckpointOptions* options) {
  const auto ledger = std::make_shared<Ledger>();
  const AmbientScope scope(ledger);
  Generator generator{9, 0, 0};
  const Tensor x = input(generator);
  std::vector<int> order;
  const Function f = counting(std::vector<Function>{three_layers}, order)[0];
  Mechanism m;
  const std::int64_t before = ledger->live();
  Tensor y = (options != nullptr ? checkpoint(f, {x}, *options) : f({x}))[0];
  m.nodes = nodes_behind(y);
  m.last_node = y.grad_fn()->name();
  const Tensor loss = sum(y);
  y = Tensor();
  m.kept = ledger->live() - before - loss.bytes();
  m.runs_before_backward = static_cast<int>(order.size());
  backward(loss);
  m.runs = static_cast<int>(order.size());
  return m;
}

/// Bytes that a plain call of `layer` keeps, before and after it was once checkpointed.
bool forward_is_not_replaced() {
  const auto ledger = std::make_shared<Ledger>();
  const AmbientScope scope(ledger);
  Generator generator{9, 0, 0};
  const Tensor x = input(generator);
  const ModulePtr tanh = activation(nn::ActivationKind::tanh);
  nn::Sequential layer({tanh, tanh});
  const auto kept_by_call = [&] {
    const std::int64_t before = ledger->live();
    const Tensor y = layer(x);
    return ledger->live() - before;
  };
  const std::int64_t first = kept_by_call();
  const std::int64_t before = ledger->live();
  const Tensors checkpointed = checkpoint(layer.function(), {x});
  const std::int64_t with = ledger->live() - before;
  return with < first && kept_by_call() == first;
}

}  // namespace

void the_snippet(Report& report) {
  report.say(
      "**The snippet.** `model.layer2 = checkpoint(model.layer2)` cannot work: `checkpoint` does "
      "not wrap a layer, it calls it, now, with the inputs that follow, and returns what it "
      "returned. The text says so itself one paragraph further (\"followed by the inputs\"). It "
      "belongs in the forward: `x = checkpoint(layer2, {x})`.");
  const bool compiles = CheckpointableWithoutInputs<Function> ||
                        ReplaceableByItsCheckpoint<std::shared_ptr<nn::Module>> ||
                        ReplaceableByItsCheckpoint<Function>;
  nn::Linear layer(4, 4);
  std::string refusal;
  try {
    checkpoint(layer.function(), {});
  } catch (const std::invalid_argument& e) {
    refusal = e.what();
  }
  report.claim(!compiles && refusal.find("checkpoint(layer.function(), {x})") != std::string::npos,
               "Here neither half of the snippet compiles: `checkpoint` demands inputs, and its "
               "result is no layer. Given an empty list of inputs, it answers: \"{}\".",
               refusal);
  const Tensor w = Tensor::ones({2}, DType::float32).set_requires_grad(true);
  const Function closed = [&](const Tensors&) -> Tensors { return {tanh(w)}; };
  backward(sum(checkpoint(closed, {})[0]));
  const bool trains = w.grad().defined();
  const std::int64_t warnings = frozen_checkpoint_warnings();
  const bool frozen = !checkpoint(closed, {}, {.reentrant = true})[0].requires_grad() &&
                      frozen_checkpoint_warnings() == warnings + 1;
  report.claim(
      trains && frozen,
      "A function that needs no input because it captures all it uses is legal. The non-reentrant "
      "variant trains it; the reentrant one freezes it, and counts a warning.");
}

void the_mechanism(Report& report) {
  report.say(
      "**\"A common misconception is that checkpointing only works for entire layers.\"** Below, a "
      "module of layer norm, Linear, gelu and Linear around a skip, with nothing checkpointed, "
      "with the part between norm and skip as a function, and as a whole.");
  Table& parts = report.table("A part of a module, as a function",
                              {"checkpointed", "bytes kept after the forward", "gradients"});
  const OwnRun nothing = run_own(What::nothing);
  const OwnRun part = run_own(What::part);
  const OwnRun all = run_own(What::whole);
  const auto verdict = [&](const OwnRun& run) {
    return run.bits == nothing.bits ? "equal to the bit" : "differ";
  };
  parts.row({"nothing", grouped(nothing.kept), "-"});
  parts.row({"the part, a lambda", grouped(part.kept), verdict(part)});
  parts.row({"the whole", grouped(all.kept), verdict(all)});
  report.claim(part.kept < nothing.kept && all.kept == 0 && part.bits == nothing.bits &&
                   all.bits == nothing.bits,
               "Right: any function of tensors will do, and parameters may be captured.");

  Table& table =
      report.table("Three tanh layers in one function: what a checkpoint puts into the graph",
                   {"run", "nodes", "node behind the output", "bytes kept, output let go of",
                    "runs after forward", "runs after backward"});
  const CheckpointOptions non_reentrant;
  const CheckpointOptions reentrant{.reentrant = true};
  const Mechanism plain = mechanism_of(nullptr);
  const Mechanism hooks = mechanism_of(&non_reentrant);
  const Mechanism node = mechanism_of(&reentrant);
  const auto add = [&](const char* name, const Mechanism& m) {
    table.row({name, std::to_string(m.nodes), m.last_node, grouped(m.kept),
               std::to_string(m.runs_before_backward), std::to_string(m.runs)});
  };
  add("plain", plain);
  add("non-reentrant", hooks);
  add("reentrant", node);
  report.claim(plain.kept == 3 * kSamples * kFeatures * 4 && hooks.kept == 0 && node.kept == 0,
               "\"It doesn't save the output\", \"you only store the inputs\": right. Beyond the "
               "input nothing is kept, not one byte.");
  report.claim(
      hooks.nodes == plain.nodes && node.nodes == 1 && node.last_node == "CheckpointBackward" &&
          hooks.last_node == plain.last_node && hooks.runs == 2 && node.runs == 2 &&
          hooks.runs_before_backward == 1,
      "\"It registers a backward hook\": neither variant does. The reentrant one is a node of the "
      "graph, which runs the function again and differentiates that; the non-reentrant one records "
      "the plain graph and leaves placeholders for what its nodes save, the first of which to be "
      "asked for runs the function again. Once, both times.");
  report.claim(
      forward_is_not_replaced(),
      "\"PyTorch effectively replaces its forward method\": a checkpoint belongs to a call, not to "
      "a module. The next plain call of the same module keeps what it kept before.");
}

}  // namespace rematch::scenarios::trade
