#pragma once

#include <ostream>

#include <rapidcheck.h>

#include "properties/case/json.h"
#include "properties/generate/mix.h"
#include "properties/generate/shrink.h"

namespace rematch {

/// Cases of a mix for RapidCheck, which shrinks them by shrink_candidates().
inline rc::Gen<Case> arbitrary_case(Mix mix) {
  return [mix](rc::Random random, int /*size*/) {
    const std::uint64_t seed = random.next();
    return rc::shrinkable::shrinkRecur(generate_case(mix, seed, 0), [](const Case& c) {
      return rc::seq::fromContainer(shrink_candidates(c));
    });
  };
}

/// RapidCheck finds this by its name when it prints a counterexample.
inline void showValue(const Case& c, std::ostream& os) { os << '\n' << to_json(c); }

}  // namespace rematch
