#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/checkpoint/sequential.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "scenarios/support/judging.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::uniform_chunks_story {
namespace {

/// Runs layers in checkpointed chunks of `size`.
struct Chunks {
  int size = 1;
  bool clamped = true;  ///< The last chunk ends where the layers end.
  bool chained = true;  ///< Within a chunk a layer reads what the one before it made.
};

Tensors run_chunks(const std::vector<Function>& layers, const Chunks& how, Tensors values) {
  const int count = static_cast<int>(layers.size());
  for (int begin = 0; begin < count; begin += how.size) {
    const int end = how.clamped ? std::min(begin + how.size, count) : begin + how.size;
    const Function chunk = [&layers, begin, end, how](const Tensors& in) {
      Tensors out = in;
      for (int i = begin; i < end; ++i) {
        out = layers.at(static_cast<std::size_t>(i))(how.chained ? out : in);
      }
      return out;
    };
    values = checkpoint(chunk, values);
  }
  return values;
}

/// The sum of what 24 layers make of ones, or nothing when a layer was asked for that is not there.
std::optional<double> result(const Chunks* how) {
  const AmbientScope scope(std::make_shared<Ledger>());
  Generator g{2294, 0, 0};
  std::vector<Function> layers(24);
  for (Function& layer : layers) {
    layer = [w = linear_layer(8, 8, g)](const Tensors& in) -> Tensors {
      return {tanh(w->forward(in[0]))};
    };
  }
  const Tensor x = Tensor::ones({2, 8}, DType::float32, Tag::inputs);
  try {
    return sum(how != nullptr ? run_chunks(layers, *how, {x})[0] : run_regions(layers, {}, x))
        .item();
  } catch (const std::out_of_range&) {
    return std::nullopt;
  }
}

/// Layers that fill no whole segment are left out.
class RemainderDropped final : public Mechanics {
 public:
  std::vector<Segment> partition(int layers, int segments, LastSegment last) const override {
    std::vector<Segment> cut = Mechanics::partition(layers, segments, last);
    cut.back().end -= layers % segments;
    return cut;
  }
};

}  // namespace

void run(const Options& /*options*/, Report& report) {
  const std::optional<double> plain = result(nullptr);
  report.say(
      "24 layers, checkpointed in chunks of k, each written as a loop over its layers. Three ways "
      "to write that loop, each beside the plain run; shown is the sum of the outputs.");
  Table& table = report.table(
      "Chunks of k among 24 layers",
      {"k", "end not clamped", "clamped", "layers fed with the chunk's input", "plain"});
  const auto text = [](std::optional<double> value) {
    return value ? fmt::format("{:.6f}", *value) : std::string("no such layer");
  };
  bool unclamped_fails = true, clamped_right = true, unchained_wrong = true;
  for (const int k : {1, 2, 6, 7, 10}) {
    const Chunks unclamped{k, false, true};
    const Chunks clamped{k, true, true};
    const Chunks unchained{k, true, false};
    const std::optional<double> seen[] = {result(&unclamped), result(&clamped), result(&unchained)};
    table.row({k, text(seen[0]), text(seen[1]), text(seen[2]), text(plain)});
    unclamped_fails &= seen[0].has_value() == (24 % k == 0);
    clamped_right &= seen[1] == plain;
    unchained_wrong &= (seen[2] == plain) == (k == 1);
  }
  report.claim(unclamped_fails,
               "Where k does not divide 24 the last chunk asks for layers that are not there: with "
               "k = 7 it is layers 21 to 27.");
  report.claim(clamped_right,
               "Clamped, every k gives the plain run's result: 7, 7, 7 and 3 layers for k = 7.");
  report.claim(
      unchained_wrong,
      "A loop that feeds each layer with the chunk's input goes right for k = 1 alone. (Another "
      "fault that was real: [pull request 290](https://github.com/NVIDIA/Megatron-LM/pull/290).)");
  const Case c = case_from_json(R"({"format": 1, "seed": 2294, "input": [2, 8], "layers": [
    {"kind": "tanh"}, {"kind": "tanh"}, {"kind": "tanh"}, {"kind": "tanh"}, {"kind": "tanh"},
    {"kind": "tanh"}, {"kind": "tanh"}, {"kind": "tanh"}, {"kind": "tanh"}, {"kind": "tanh"}],
    "plan": {"sequential": {"segments": 4, "last_stored": true, "variant": "non_reentrant"}},
    "protocol": {"input_requires_grad": true}})");
  report.say(
      "`checkpoint_sequential` is asked for a number of segments instead and has no such end: 10 "
      "layers in 4 segments are 2, 2, 2 and 4, the remainder in the last.");
  tell_case(c, report);
  EngineSubject short_of_layers({std::make_shared<RemainderDropped>(), nullptr});
  claim_law_finds(c, short_of_layers, "a partition that drops the remainder", "outputs", report);
  claim_law_finds(c, "P9",
                  "one that puts it into the first segment (no value differs, only the work)",
                  "executions", report);
}

}  // namespace rematch::scenarios::uniform_chunks_story
