#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/ops/arithmetic.h"
#include "properties/output/terminal.h"
#include "scenarios/report/report.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::memory_trade_story {
namespace {

using cli::grouped;

constexpr std::int64_t kRows = 256;
constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kInner = 1024;
constexpr std::int64_t kChannels = 32;
constexpr std::int64_t kSide = 16;
constexpr std::int64_t kImages = 8;
constexpr std::int64_t kElements = kRows * kWidth;
static_assert(kImages * kChannels * kSide * kSide == kElements);

/// Layers that take kElements floats and return as many.
struct Block {
  std::string name;
  bool image = false;
  std::vector<ModulePtr> layers;
  /// Two for each multiply-add of a product, one for each element that any other layer makes.
  std::int64_t operations = 0;
};

std::vector<Block> blocks() {
  constexpr std::int64_t kProduct = 2 * kRows * kWidth * kWidth;
  constexpr std::int64_t kWide = 2 * kRows * kWidth * kInner;
  constexpr std::int64_t kConvolution = 2 * kElements * kChannels * 9;
  Generator g{1, 0, 0};
  const ModulePtr linear = linear_layer(kWidth, kWidth, g);
  const ModulePtr widen = linear_layer(kWidth, kInner, g);
  const ModulePtr narrow = linear_layer(kInner, kWidth, g);
  const ModulePtr convolution =
      std::make_shared<nn::Conv2d>(kChannels, kChannels, 3, 1, 1, true, DType::float32, &g);
  const ModulePtr relu = activation(nn::ActivationKind::relu);
  const ModulePtr gelu = activation(nn::ActivationKind::gelu);
  const ModulePtr norm = std::make_shared<nn::LayerNorm>(kWidth);
  const ModulePtr batch_norm = std::make_shared<nn::BatchNorm>(kChannels);
  const ModulePtr dropout = std::make_shared<nn::RandomLayer>(nn::RandomKind::dropout, 0.1);
  return {{"Linear 256", false, {linear}, kProduct},
          {"relu", false, {relu}, kElements},
          {"gelu", false, {gelu}, kElements},
          {"layer norm", false, {norm}, kElements},
          {"dropout", false, {dropout}, kElements},
          {"Linear 256, relu", false, {linear, relu}, kProduct + kElements},
          {"Linear 256, gelu", false, {linear, gelu}, kProduct + kElements},
          {"Linear 256 to 1024, gelu, Linear to 256",
           false,
           {widen, gelu, narrow},
           2 * kWide + kRows * kInner},
          {"layer norm, gelu, dropout", false, {norm, gelu, dropout}, 3 * kElements},
          {"conv 3x3 of 32 channels", true, {convolution}, kConvolution},
          {"conv 3x3, batch norm, relu",
           true,
           {convolution, batch_norm, relu},
           kConvolution + 2 * kElements}};
}

/// Bytes alive after the forward, of the block's input, its inside and its output. The input comes
/// from a layer that does not keep it, and the output is kept, as the next layer would.
std::int64_t kept_by(const Block& block, bool checkpointed, double* milliseconds = nullptr) {
  const auto ledger = std::make_shared<Ledger>();
  const AmbientScope scope(ledger);
  Generator generator{1, 0, 0};
  nn::Sequential model(block.layers);
  const Shape shape = block.image ? Shape{kImages, kChannels, kSide, kSide} : Shape{kRows, kWidth};
  const Tensor source = normal_input(shape, generator).set_requires_grad(true);
  const std::int64_t before = ledger->live();
  Tensor y;
  {
    const Tensor x = scale(source, 1);
    const auto begin = std::chrono::steady_clock::now();
    y = checkpointed ? checkpoint(model.function(), {x})[0] : model(x);
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin;
    if (milliseconds != nullptr) *milliseconds = taken.count();
  }
  return ledger->live() - before;
}

/// The time of a forward: the middle one of five.
double milliseconds_of(const Block& block) {
  double times[5];
  for (double& time : times) kept_by(block, false, &time);
  std::sort(std::begin(times), std::end(times));
  return times[2];
}

std::string per_operation(std::int64_t saved, std::int64_t operations) {
  if (saved <= 0) return "-";
  return fmt::format("{:.2f}",
                     1000.0 * static_cast<double>(saved) / static_cast<double>(operations));
}

}  // namespace

void worth_checkpointing(Report& report) {
  report.say(
      "**Which blocks are worth it?** Every block here takes and returns {} floats ({} bytes). Its "
      "checkpoint keeps input and output; what counts is what the block keeps beyond these, and "
      "what it costs to compute that again: two operations for each multiply-add of a product, one "
      "for each element that any other layer makes.",
      grouped(kElements), grouped(kElements * 4));
  Table& table = report.table("Bytes kept after the forward, and what a checkpoint saves of them",
                              {"block", "plain", "checkpointed", "saved", "operations run again",
                               "bytes saved per 1000 operations"});
  Chart chart =
      bars("Bytes kept after the forward, by block", "block", "KiB", {"plain", "checkpointed"});
  bool single_gains_nothing = true, some_lose = false;
  double cheap = 0;
  double wide = 0;
  std::int64_t cheap_saves = 0;
  std::int64_t wide_saves = 0;
  for (const Block& block : blocks()) {
    const std::int64_t plain = kept_by(block, false);
    const std::int64_t checkpointed = kept_by(block, true);
    const std::int64_t saved = plain - checkpointed;
    table.row({block.name, grouped(plain), grouped(checkpointed), grouped(saved),
               grouped(block.operations), per_operation(saved, block.operations)});
    add_bars(chart, block.name, {in_kib(plain), in_kib(checkpointed)});
    const bool single = block.name.find(',') == std::string::npos;
    // A hundredth of what it keeps is next to nothing.
    if (single) single_gains_nothing &= 100 * saved < plain;
    if (single) some_lose = some_lose || saved < 0;
    const double rate = static_cast<double>(saved) / static_cast<double>(block.operations);
    if (block.name.starts_with("layer norm")) cheap = rate, cheap_saves = saved;
    if (block.name.starts_with("Linear 256 to 1024")) wide = rate, wide_saves = saved;
    if (saved > 0) {
      const double milliseconds = milliseconds_of(block);
      report.measured("{}: {:.2f} ms to run again, {:.1f} MiB saved per millisecond", block.name,
                      milliseconds, in_kib(saved) / 1024 / milliseconds);
    }
  }
  report.chart(std::move(chart));
  report.claim(
      single_gains_nothing && some_lose,
      "No single layer is worth a checkpoint, however large. Linear, convolution and gelu keep "
      "their input, and so does the checkpoint; layer norm keeps two numbers a row beside it. Of "
      "relu and dropout a checkpoint keeps more than they do: the input beside the output.");
  report.claim(
      wide_saves > cheap_saves && cheap > 20 * wide && wide > 0,
      "\"A good heuristic is to checkpoint larger, memory-intensive blocks\": memory-intensive, "
      "yes; larger, no. The block of two Linear layers saves more bytes, but the chain of cheap "
      "layers saves {:.0f} times as many for each operation.",
      cheap / wide);
}

}  // namespace rematch::scenarios::memory_trade_story
