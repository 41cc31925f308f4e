#include "scenarios/stories/memory_trade/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "engine/ambient/ambient_scope.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/nn/layers.h"
#include "engine/ops/arithmetic.h"
#include "properties/output/terminal.h"

namespace rematch::scenarios::trade {
namespace {

using cli::grouped;
using ModulePtr = std::shared_ptr<nn::Module>;

constexpr std::int64_t kRows = 256;
constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kInner = 1024;
constexpr std::int64_t kChannels = 32;
constexpr std::int64_t kSide = 16;
constexpr std::int64_t kImages = 8;
constexpr std::int64_t kElements = kRows * kWidth;
static_assert(kImages * kChannels * kSide * kSide == kElements);

/// A block made by `make`, which takes kElements floats and returns as many.
struct Block {
  std::string name;
  bool image = false;
  std::vector<ModulePtr> (*make)(Generator&);
  /// Two for each multiply-add of a product, one for each element that any other layer makes.
  std::int64_t operations = 0;
};

ModulePtr linear_layer(std::int64_t in, std::int64_t out, Generator& g) {
  return std::make_shared<nn::Linear>(in, out, true, DType::float32, &g);
}
ModulePtr activation(nn::ActivationKind kind) { return std::make_shared<nn::Activation>(kind); }
ModulePtr dropout_layer() {
  return std::make_shared<nn::RandomLayer>(nn::RandomKind::dropout, 0.1);
}

std::vector<Block> blocks() {
  using Kind = nn::ActivationKind;
  constexpr std::int64_t kProduct = 2 * kRows * kWidth * kWidth;
  constexpr std::int64_t kWide = 2 * kRows * kWidth * kInner;
  constexpr std::int64_t kConvolution = 2 * kElements * kChannels * 9;
  return {
      {"Linear 256", false,
       [](Generator& g) -> std::vector<ModulePtr> { return {linear_layer(kWidth, kWidth, g)}; },
       kProduct},
      {"relu", false, [](Generator&) -> std::vector<ModulePtr> { return {activation(Kind::relu)}; },
       kElements},
      {"gelu", false, [](Generator&) -> std::vector<ModulePtr> { return {activation(Kind::gelu)}; },
       kElements},
      {"layer norm", false,
       [](Generator&) -> std::vector<ModulePtr> {
         return {std::make_shared<nn::LayerNorm>(kWidth)};
       },
       kElements},
      {"dropout", false, [](Generator&) -> std::vector<ModulePtr> { return {dropout_layer()}; },
       kElements},
      {"Linear 256, relu", false,
       [](Generator& g) -> std::vector<ModulePtr> {
         return {linear_layer(kWidth, kWidth, g), activation(Kind::relu)};
       },
       kProduct + kElements},
      {"Linear 256, gelu", false,
       [](Generator& g) -> std::vector<ModulePtr> {
         return {linear_layer(kWidth, kWidth, g), activation(Kind::gelu)};
       },
       kProduct + kElements},
      {"Linear 256 to 1024, gelu, Linear to 256", false,
       [](Generator& g) -> std::vector<ModulePtr> {
         return {linear_layer(kWidth, kInner, g), activation(Kind::gelu),
                 linear_layer(kInner, kWidth, g)};
       },
       2 * kWide + kRows* kInner},
      {"layer norm, gelu, dropout", false,
       [](Generator&) -> std::vector<ModulePtr> {
         return {std::make_shared<nn::LayerNorm>(kWidth), activation(Kind::gelu), dropout_layer()};
       },
       3 * kElements},
      {"conv 3x3 of 32 channels", true,
       [](Generator& g) -> std::vector<ModulePtr> {
         return {
             std::make_shared<nn::Conv2d>(kChannels, kChannels, 3, 1, 1, true, DType::float32, &g)};
       },
       kConvolution},
      {"conv 3x3, batch norm, relu", true,
       [](Generator& g) -> std::vector<ModulePtr> {
         return {
             std::make_shared<nn::Conv2d>(kChannels, kChannels, 3, 1, 1, true, DType::float32, &g),
             std::make_shared<nn::BatchNorm>(kChannels), activation(Kind::relu)};
       },
       kConvolution + 2 * kElements}};
}

struct Kept {
  std::int64_t plain = 0;
  std::int64_t checkpointed = 0;
  double recomputation_milliseconds = 0;
};

/// Bytes alive after the forward, of the block's input, its inside and its output. The input comes
/// from a layer that does not keep it, and the output is kept, as the next layer would.
std::int64_t kept_by(const Block& block, bool checkpointed, double* milliseconds = nullptr) {
  const auto ledger = std::make_shared<Ledger>();
  const AmbientScope scope(ledger);
  Generator generator{1, 0, 0};
  nn::Sequential model(block.make(generator));
  const Shape shape = block.image ? Shape{kImages, kChannels, kSide, kSide} : Shape{kRows, kWidth};
  Tensor source = Tensor::empty(shape, DType::float32, Tag::inputs);
  nn::fill_normal(source, generator);
  source.set_requires_grad(true);
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

Kept measure(const Block& block) {
  constexpr int kRepeats = 5;
  Kept kept;
  kept.plain = kept_by(block, false);
  kept.checkpointed = kept_by(block, true);
  std::vector<double> times(kRepeats);
  for (double& time : times) kept_by(block, false, &time);
  std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
  kept.recomputation_milliseconds = times[kRepeats / 2];
  return kept;
}

std::string per_operation(std::int64_t saved, std::int64_t operations) {
  if (saved <= 0) return "-";
  return fmt::format("{:.2f}",
                     1000.0 * static_cast<double>(saved) / static_cast<double>(operations));
}

}  // namespace

void worth_checkpointing(Report& report) {
  report.say(fmt::format(
      "**Which blocks are worth it?** Every block here takes and returns {} floats ({} bytes). Its "
      "checkpoint keeps input and output; what counts is what the block keeps beyond these, and "
      "what it costs to compute that again: two operations for each multiply-add of a product, one "
      "for each element that any other layer makes.",
      grouped(kElements), grouped(kElements * 4)));
  Table& table = report.table("Bytes kept after the forward, and what a checkpoint saves of them",
                              {"block", "plain", "checkpointed", "saved", "operations run again",
                               "bytes saved per 1000 operations"});
  Chart chart{.title = "Bytes kept after the forward, by block",
              .x_label = "block",
              .y_label = "KiB",
              .kind = Chart::Kind::bars,
              .series = {{"plain", {}, {}}, {"checkpointed", {}, {}}}};
  constexpr double kKibibyte = 1024;
  bool single_gains_nothing = true;
  bool some_lose = false;
  double cheap = 0;
  double wide = 0;
  std::int64_t cheap_saves = 0;
  std::int64_t wide_saves = 0;
  for (const Block& block : blocks()) {
    const Kept kept = measure(block);
    const std::int64_t saved = kept.plain - kept.checkpointed;
    table.row({block.name, grouped(kept.plain), grouped(kept.checkpointed), grouped(saved),
               grouped(block.operations), per_operation(saved, block.operations)});
    chart.categories.push_back(block.name);
    chart.series[0].y.push_back(static_cast<double>(kept.plain) / kKibibyte);
    chart.series[1].y.push_back(static_cast<double>(kept.checkpointed) / kKibibyte);
    const bool single = block.name.find(',') == std::string::npos;
    // A hundredth of what it keeps is next to nothing.
    if (single) single_gains_nothing = single_gains_nothing && 100 * saved < kept.plain;
    if (single) some_lose = some_lose || saved < 0;
    const double rate = static_cast<double>(saved) / static_cast<double>(block.operations);
    if (block.name.starts_with("layer norm")) cheap = rate, cheap_saves = saved;
    if (block.name.starts_with("Linear 256 to 1024")) wide = rate, wide_saves = saved;
    if (saved > 0) {
      report.measured(fmt::format(
          "{}: {:.2f} ms to run again, {:.1f} MiB saved per millisecond", block.name,
          kept.recomputation_milliseconds,
          static_cast<double>(saved) / kKibibyte / kKibibyte / kept.recomputation_milliseconds));
    }
  }
  report.chart(std::move(chart));
  report.claim(single_gains_nothing && some_lose,
               "No single layer is worth a checkpoint, however large. Linear, convolution and gelu "
               "keep their input, and so does the checkpoint; layer norm keeps two numbers a row "
               "beside it. Of relu and dropout a checkpoint keeps more than they do: the input "
               "beside the output.");
  report.claim(wide_saves > cheap_saves && cheap > 20 * wide && wide > 0,
               fmt::format("\"A good heuristic is to checkpoint larger, memory-intensive blocks\": "
                           "memory-intensive, yes; larger, no. The block of two Linear layers "
                           "saves more bytes, but the chain of cheap layers saves {:.0f} times as "
                           "many for each operation.",
                           cheap / wide));
}

}  // namespace rematch::scenarios::trade
