#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "engine/tensor/dtype.h"

namespace rematch {

/// Calls body.operator()<T>() with the C++ type of a floating dtype; throws std::invalid_argument
/// for the others.
template <class Body>
decltype(auto) for_floating(DType dtype, std::string_view op, Body&& body) {
  switch (dtype) {
    case DType::float32:
      return body.template operator()<float>();
    case DType::float64:
      return body.template operator()<double>();
    default:
      throw std::invalid_argument("[" + std::string(op) + "] float32 or float64 expected, got " +
                                  std::string(to_string(dtype)));
  }
}

}  // namespace rematch
