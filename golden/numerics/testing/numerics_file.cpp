#include "golden/numerics/testing/numerics_file.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace rematch::golden {
namespace {

using nlohmann::json;

DType dtype_named(const std::string& name) {
  for (const DType dtype : {DType::float32, DType::float64, DType::int32}) {
    if (name == to_string(dtype)) return dtype;
  }
  throw std::runtime_error("unknown dtype " + name);
}

Tensor tensor_of(const json& j) {
  return Tensor::from(j.at("values").get<std::vector<double>>(),
                      Shape(j.at("shape").get<std::vector<std::int64_t>>()),
                      dtype_named(j.at("dtype").get<std::string>()));
}

Tensors tensors_of(const json& j) {
  Tensors result;
  for (const json& t : j) result.push_back(tensor_of(t));
  return result;
}

NamedTensors named_tensors_of(const json& j) {
  NamedTensors result;
  for (const auto& [name, t] : j.items()) result.emplace(name, tensor_of(t));
  return result;
}

Entry entry_of(const json& j) {
  Entry e;
  e.name = j.at("name").get<std::string>();
  e.op = j.at("op").get<std::string>();
  e.dtype = dtype_named(j.at("dtype").get<std::string>());
  e.attributes = j.at("attributes");
  e.inputs = named_tensors_of(j.at("inputs"));
  e.after = named_tensors_of(j.at("after"));
  // Optimizers and models have none of these.
  if (j.contains("outputs")) {
    e.outputs = tensors_of(j.at("outputs"));
    e.output_gradients = tensors_of(j.at("output_gradients"));
    e.gradients = named_tensors_of(j.at("gradients"));
  }
  return e;
}

}  // namespace

std::vector<Entry> parse_numerics(std::string_view text) {
  try {
    const json file = json::parse(text);
    const int format = file.value("format", 0);
    if (format != kNumericsFormat) {
      throw std::runtime_error("format " + std::to_string(kNumericsFormat) + " expected, got " +
                               std::to_string(format));
    }
    std::vector<Entry> entries;
    for (const json& op : file.at("ops")) entries.push_back(entry_of(op));
    return entries;
  } catch (const std::exception& error) {
    throw std::runtime_error("[golden] golden/numerics/numerics.json cannot be used: " +
                             std::string(error.what()) + "; run golden/make_numerics");
  }
}

std::vector<Entry> read_numerics() {
  std::ifstream file(REMATCH_SOURCE_DIR "/golden/numerics/numerics.json");
  std::ostringstream text;
  text << file.rdbuf();
  return parse_numerics(text.str());
}

}  // namespace rematch::golden
