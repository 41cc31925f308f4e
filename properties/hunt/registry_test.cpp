#include "properties/hunt/registry.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>
#include <string>

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

}  // namespace

// That a subject is added, and has every command, is what ci/consumer/run.cmake shows.
TEST_CASE("a subject is not added under a name that is taken, or that no command line could have") {
  const SubjectMaker make = [](Device) { return make_subject("engine"); };
  for (const char* taken : {"engine", "engine:R1", "engine:of_mine", "pytorch"}) {
    INFO(taken);
    CHECK_THROWS_AS(add_subject(taken, make), std::invalid_argument);
  }
  for (const char* wrong : {"", "two words", " "}) {
    INFO(wrong);
    CHECK_THROWS_MATCHES(add_subject(wrong, make), std::invalid_argument,
                         MessageMatches(ContainsSubstring("expected a name of one word")));
  }
  CHECK(default_subject() == "engine");
}

TEST_CASE("a device is refused for a subject in another process, which chooses its own") {
  for (const char* elsewhere : {"sh mine.sh", "rematch serve"}) {
    INFO(elsewhere);
    CHECK_FALSE(is_in_process(elsewhere));
    CHECK_THROWS_MATCHES(make_subject(elsewhere, Device::cuda), std::invalid_argument,
                         MessageMatches(ContainsSubstring("chooses its own")));
  }
}

}  // namespace rematch
