#pragma once

#include <catch2/catch_test_macros.hpp>
#include <exception>
#include <initializer_list>
#include <string>

#include "properties/testing/shell.h"

namespace rematch::testing {

/// Checks how a program ended, and that it said each of `texts`.
inline void check(const Outcome& o, int status,
                  std::initializer_list<std::string_view> texts = {}) {
  INFO(o.out);
  CHECK(o.status == status);
  for (const std::string_view text : texts) {
    INFO("expected: " << text);
    CHECK(contains(o.out, text));
  }
}

/// What the exception says that ends `work`; "none" where none does.
template <class Work>
std::string message_of(Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

}  // namespace rematch::testing
