#include "properties/forecast/engine_facts.h"

#include <span>

#include "properties/layers/layer.h"

namespace rematch {

void engine_facts(const Case& c, const Geometry& geometry, bool host_kernels, Facts& facts) {
  facts.clear();
  const Shape input{std::span(c.input)};
  for (int i = 0; i < static_cast<int>(c.layers.size()); ++i) {
    FactsWriter writer(c.layers, i, input, geometry, c.protocol.train, c.dtype, host_kernels,
                       facts);
    const Layer& layer = layer_of(writer.spec);
    writer.f.ops = static_cast<int>(ops_of(writer.spec, c.protocol.train).size());
    writer.f.low_precision = c.protocol.autocast != AutocastSpan::off && layer.low_precision;
    layer.facts(writer);
    writer.finish();
  }
}

}  // namespace rematch
