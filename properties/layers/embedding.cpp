#include "properties/layers/layer.h"

namespace rematch {

constinit const Layer embedding_layer{
    .name = "embedding",
    .fields = {"features", "vocabulary", "frozen"},
    .shape =
        [](ShapeWalk& s) {
          s.need_tokens();
          s.need_features();
          const LayerSpec& l = s.spec();
          s.parameter("weight", Shape{l.vocabulary, l.features}, -1, 1);
          s.output(std::array{s.x()[0], s.x()[1], l.features});
        },
    .facts = [](FactsWriter& w) { w.save(FactsWriter::What::operand); },
    .has_parameters = true,
    .overwritable = true,
    // A model begins with it or does not: no draw of a further layer chooses it.
    .weights = {},
    .wide_floor = 4,
};

}  // namespace rematch
