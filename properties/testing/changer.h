#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include "properties/record/entries.h"

namespace rematch::testing {

/// Changes one field, the `wanted`-th, of the entry that it visits (entries::fields): numbers by so
/// much, anything else to another value. `name` stays empty where there is no such field.
struct Changer {
  int wanted;
  int by = 1;
  int field = 0;
  std::string_view name = {};
  template <class T>
  void operator()(std::string_view called, T& value) {
    if (field++ != wanted) return;
    name = called;
    if constexpr (std::is_same_v<T, bool>) {
      value = !value;
    } else if constexpr (std::is_enum_v<T>) {
      const std::size_t names = entries::names_of(value).size();
      value = static_cast<T>((static_cast<std::size_t>(value) + 1) % names);
    } else if constexpr (std::is_same_v<T, std::string>) {
      value += "x";
    } else {
      value = static_cast<T>(value + static_cast<T>(by));
    }
  }
};

}  // namespace rematch::testing
