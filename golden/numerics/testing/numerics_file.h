#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor/tensor.h"

namespace rematch::golden {

using NamedTensors = std::map<std::string, Tensor>;

/// One line of golden/numerics/numerics.json; golden/numerics/make_numerics.py says what the
/// members mean.
struct Entry {
  std::string name;
  std::string op;
  DType dtype{};
  nlohmann::json attributes;
  NamedTensors inputs;
  Tensors outputs;
  Tensors output_gradients;
  NamedTensors gradients;
  NamedTensors after;

  double number(const char* attribute) const { return attributes.at(attribute).get<double>(); }
  std::int64_t integer(const char* attribute) const {
    return attributes.at(attribute).get<std::int64_t>();
  }
};

inline constexpr int kNumericsFormat = 1;

/// Parses the text of golden/numerics/numerics.json. Throws std::runtime_error that says how to
/// write the file again when its format is not kNumericsFormat or a member is missing.
std::vector<Entry> parse_numerics(std::string_view text);

/// The entries of the file in the source tree.
std::vector<Entry> read_numerics();

}  // namespace rematch::golden
