#include "properties/laws/support.h"

namespace rematch {

std::string place_of(int step, int pass) {
  return "step " + std::to_string(step) + ", pass " + std::to_string(pass);
}

std::string place_of(const Case& c, int step, int pass, int layer) {
  return place_of(step, pass) + ", layer " + std::to_string(layer) + " (" +
         std::string(to_string(c.layers[static_cast<std::size_t>(layer)].kind)) + ")";
}

std::string parameter_name(const Case& c, const Geometry& geometry, int parameter) {
  const ParameterInfo& info = geometry.parameters[static_cast<std::size_t>(parameter)];
  return "parameter " + std::to_string(parameter) + " (layer " + std::to_string(info.layer) + " " +
         std::string(to_string(c.layers[static_cast<std::size_t>(info.layer)].kind)) + " " +
         std::string(info.role) + ")";
}

bool comparable_forward(const Evidence& e, int step, int pass) {
  if (e.forecast.values_comparable) return true;
  return step == 0 && (pass == 0 || e.c.protocol.forwards_first);
}

}  // namespace rematch
