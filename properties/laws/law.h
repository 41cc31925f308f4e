#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "properties/case/case.h"
#include "properties/forecast/forecast.h"
#include "properties/subjects/record.h"
#include "properties/subjects/subject.h"

namespace rematch {

/// What a law may look at. `plain` is the reference run (plain, with forecast.frozen_layers
/// detached); `checkpointed` the run under the plan.
struct Evidence {
  const Case& c;
  const Geometry& geometry;
  const Forecast& forecast;
  const Record& plain;
  const Record& checkpointed;
};

struct Breach {
  std::string_view law;
  std::string place;  ///< "step 0, parameter 2 (layer 3 linear weight), element 17".
  std::string expected;
  std::string got;
};

/// A predicate over two records and a forecast. Laws are pure functions and know nothing of how
/// the case came about.
struct Law {
  std::string_view name;       ///< "parameter-gradients"
  std::string_view statement;  ///< One sentence in the present tense.
  std::optional<Breach> (*check)(const Evidence&);
};

/// All laws, in the order in which they are judged (cheapest and most basic first).
std::span<const Law> laws();

/// nullptr when there is none of that name.
const Law* find_law(std::string_view name);

struct Verdict {
  std::optional<Breach> breach;
  int laws_checked = 0;
  bool held() const { return !breach; }
};

/// Buffers that a worker reuses from case to case.
struct Bench {
  Record plain;
  Record checkpointed;
};

/// Runs the reference and the checkpointed run on `subject` and judges the records: every law, or
/// the one given. The first breach in the order of laws() is the verdict.
Verdict judge(const Case& c, Subject& subject, Bench& bench, const Law* only = nullptr);

}  // namespace rematch
