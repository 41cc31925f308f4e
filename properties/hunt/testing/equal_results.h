#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstddef>

#include "properties/hunt/hunt_result.h"
#include "properties/hunt/tally_json.h"

namespace rematch::testing {

/// All that does not depend on who did the work, and how fast.
inline void check_equal(const HuntResult& a, const HuntResult& b) {
  CHECK(a.cases == b.cases);
  CHECK(a.features == b.features);
  CHECK(a.verdicts == b.verdicts);
  CHECK(a.first_violated == b.first_violated);
  CHECK(a.violated == b.violated);
  CHECK(a.record_hash == b.record_hash);
  CHECK(a.exact_hash == b.exact_hash);
  CHECK(a.shortfalls == b.shortfalls);
  CHECK(a.error == b.error);
  REQUIRE(a.findings.size() == b.findings.size());
  for (std::size_t i = 0; i < a.findings.size(); ++i) {
    CHECK(to_json(a.findings[i]) == to_json(b.findings[i]));
  }
}

}  // namespace rematch::testing
