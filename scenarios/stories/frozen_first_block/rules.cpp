#include <array>

#include "engine/ambient/ambient_scope.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/nn/layers.h"
#include "engine/ops/dropout.h"
#include "engine/ops/pool2d.h"
#include "scenarios/stories/frozen_first_block/parts.h"

namespace rematch::scenarios::frozen {
namespace {

const char* yes(bool b) { return b ? "yes" : "no"; }

}  // namespace

void tell_rules(Report& report) {
  const AmbientScope scope(std::make_shared<Ledger>());
  Generator g{kSeed, 0, 0};
  nn::Conv2d conv(3, 4, 3, 1, 1, true, DType::float32, &g);
  struct Region {
    const char* name;
    Function function;
  };
  const std::array regions{
      Region{"a convolution", conv.function()},
      Region{"dropout", [](const Tensors& in) -> Tensors { return {dropout(in[0], 0.25)}; }},
      Region{"max pooling", [](const Tensors& in) -> Tensors { return {max_pool2d(in[0], 2, 2)}; }},
      Region{"a function that detaches its result",
             [&](const Tensors& in) -> Tensors { return {conv(in[0]).detach()}; }},
  };
  Table& table = report.table("Does the output require grad?",
                              {"region", "input requires grad", "plain", "reentrant checkpoint",
                               "non-reentrant checkpoint"});
  bool quoted_rule_holds = true;
  bool reentrant_follows_input = true;
  bool non_reentrant_follows_plain = true;
  for (const Region& region : regions) {
    for (const bool input : {false, true}) {
      Tensor x = Tensor::ones({1, 3, 4, 4}, DType::float32, Tag::inputs);
      x.set_requires_grad(input);
      const auto flag = [&](bool reentrant) {
        CheckpointOptions options;
        options.reentrant = reentrant;
        return checkpoint(region.function, {x}, options)[0].requires_grad();
      };
      const bool plain = region.function({x})[0].requires_grad();
      const bool has_parameters = &region == regions.data();
      const bool detaches = &region == &regions.back();
      quoted_rule_holds = quoted_rule_holds && (detaches || plain == (input || has_parameters));
      const bool reentrant = flag(true);
      const bool non_reentrant = flag(false);
      reentrant_follows_input = reentrant_follows_input && reentrant == input;
      non_reentrant_follows_plain = non_reentrant_follows_plain && non_reentrant == plain;
      table.row({region.name, yes(input), yes(plain), yes(reentrant), yes(non_reentrant)});
    }
  }
  report.claim(quoted_rule_holds,
               "The rule that the thread quotes is right: an operation's output requires grad when "
               "one of its inputs does, and weights are inputs. So plain the convolution makes "
               "pictures into something that requires grad, dropout and max pooling do not.");
  report.claim(reentrant_follows_input,
               "\"Solely determined by the input\" is right for the reentrant variant: in all 8 "
               "rows its output requires grad exactly when its input does, whatever the region "
               "contains, even where the plain output does not.");
  report.claim(non_reentrant_follows_plain,
               "It is wrong for the non-reentrant variant: in all 8 rows its output requires grad "
               "exactly when the plain one does. \"Applying checkpointing will not do this for "
               "you\" depends on the variant.");
}

}  // namespace rematch::scenarios::frozen
