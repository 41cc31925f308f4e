#include "properties/laws/support.h"

namespace rematch {

std::string place_of(int step, int microbatch) {
  return "step " + std::to_string(step) + ", microbatch " + std::to_string(microbatch);
}

std::string layer_name(const Case& c, int layer) {
  // A record may tell of layers that do not exist.
  const bool known = layer >= 0 && layer < static_cast<int>(c.layers.size());
  return "layer " + std::to_string(layer) + " (" +
         (known ? std::string(to_string(c.layers[static_cast<std::size_t>(layer)].kind)) : "none") +
         ")";
}

std::string place_of(const Case& c, int step, int microbatch, int layer) {
  return place_of(step, microbatch) + ", " + layer_name(c, layer);
}

std::string parameter_name(const Case& c, const Geometry& geometry, int parameter) {
  const ParameterInfo& info = geometry.parameters[static_cast<std::size_t>(parameter)];
  const LayerKind kind = c.layers[static_cast<std::size_t>(info.layer)].kind;
  return "parameter " + std::to_string(parameter) + " (layer " + std::to_string(info.layer) + " " +
         std::string(to_string(kind)) + " " + std::string(info.role) + ")";
}

bool comparable_forward(const Evidence& e, int step, int microbatch) {
  if (e.forecast.values_comparable) return true;
  return step == 0 && (microbatch == 0 || e.c.protocol.forwards_first);
}

}  // namespace rematch
