#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

#include <rapidcheck.h>
#include <catch2/catch_test_macros.hpp>

namespace rematch {

/// Checks a RapidCheck property from inside a Catch2 test, in `cases` cases unless RC_PARAMS asks
/// for more. `id` names the property in RC_PARAMS="reproduce=...", so it is unique within a program
/// and stays as it is. While RC_PARAMS reproduces other properties, this one is skipped (so a test
/// checks one property); a property of which no case ran fails, for RapidCheck itself would call
/// that a success. Once the fault is fixed, a reproduction fails with "Reproduced result is not a
/// failure".
template <class Testable>
void check_property(const std::string& id, Testable&& property, int cases = 100) {
  const auto& reproduce = rc::detail::configuration().reproduce;
  if (!reproduce.empty() && !reproduce.contains(id)) SKIP("RC_PARAMS reproduces other properties");
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = std::max(params.maxSuccess, cases);
  const rc::detail::TestMetadata metadata{id, id};
  const rc::detail::TestResult result =
      rc::detail::checkTestable(std::forward<Testable>(property), metadata, params);
  std::ostringstream message;
  rc::detail::printResultMessage(result, message);
  INFO(id << ": " << message.str());
  REQUIRE(result.template is<rc::detail::SuccessResult>());
  REQUIRE(result.template get<rc::detail::SuccessResult>().numSuccess > 0);
}

}  // namespace rematch
