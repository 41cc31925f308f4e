#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/forecast/forecast.h"
#include "properties/laws/law.h"
#include "properties/subjects/record.h"
#include "properties/subjects/subject.h"

namespace rematch {

struct LawVerdict {
  const Law* law = nullptr;
  std::optional<Breach> breach;
  /// false: the law has nothing to say of this case.
  bool checked = true;
};

/// One case again, looked at from every side.
struct Replay {
  Case c;
  Geometry geometry;
  Forecast forecast;
  /// Every law, or the one asked for, each judged by itself.
  std::vector<LawVerdict> verdicts;
  /// Set when a run threw; `verdicts` then holds the laws that were judged before.
  std::optional<Breach> no_answer;
  /// Both runs with their timelines.
  Record plain;
  Record checkpointed;

  /// The first breach, as a hunt would report it; nullptr when all held.
  const Breach* breach() const;
};

/// Judges the case law by law and records both timelines. The timelines come from runs of their
/// own, so that watching cannot change a verdict. Throws std::invalid_argument for an invalid case.
Replay replay(const Case& c, Subject& subject, const Law* only = nullptr);

/// The timelines without the judging.
Replay observe(const Case& c, Subject& subject);

}  // namespace rematch
