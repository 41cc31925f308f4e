#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/math/bfloat16.h"

namespace rematch {

/// Element types. Gradients exist only for the floating ones; kernels compute in float32 and
/// float64, what autocast keeps is bfloat16. int32 holds class indices and pooling indices, uint8
/// holds dropout masks.
enum class DType : std::uint8_t { float32, float64, int32, uint8, bfloat16 };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::float64:
      return 8;
    case DType::uint8:
      return 1;
    case DType::bfloat16:
      return 2;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::bfloat16;
}

constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::int32:
      return "int32";
    case DType::uint8:
      return "uint8";
    case DType::bfloat16:
      return "bfloat16";
  }
  return "?";
}

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::float32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::float64;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::int32;
}
template <>
constexpr DType dtype_of<std::uint8_t>() {
  return DType::uint8;
}
template <>
constexpr DType dtype_of<math::BFloat16>() {
  return DType::bfloat16;
}

}  // namespace rematch
