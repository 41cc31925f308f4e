#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "engine/math/dtype.h"

namespace rematch {

/// Calls body.operator()<T>() with the C++ type of a dtype that kernels compute in; throws
/// std::invalid_argument for the others, bfloat16 among them.
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

/// The same for what every floating dtype is filled and added up by: bfloat16 as well.
template <class Body>
decltype(auto) for_gradients(DType dtype, std::string_view op, Body&& body) {
  if (dtype == DType::bfloat16) return body.template operator()<math::BFloat16>();
  return for_floating(dtype, op, std::forward<Body>(body));
}

}  // namespace rematch
