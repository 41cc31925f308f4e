#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "properties/case/geometry.h"
#include "properties/forecast/forecast.h"
#include "properties/laws/law.h"
#include "properties/laws/slope.h"
#include "properties/record/subject.h"
#include "properties/rounding/reference.h"

namespace rematch {

/// The storage that Evidence refers to. A worker reuses it for one case after another, to avoid
/// allocations. It must outlive the evidence, and holds one case at a time.
struct Workspace {
  Geometry geometry;
  Facts facts;
  Forecast forecast;
  Record plain;
  Record checkpointed;
  Record repeat;
  Record plain_repeat;
  Record layers;
  Record displaced;
  SlopeSamples slope;
  Reference reference;
  /// The reference engine, made when it is first needed.
  std::shared_ptr<Subject> engine;
};

struct GatherOptions {
  /// Runs that none of these laws need are skipped.
  LawSet laws = all_laws();
  /// Both runs record their timelines.
  bool timelines = false;
  /// For every run (RunRequest): set it for cases that someone will look at, or that failed once.
  bool poison_at_once = false;
  /// Whether violations by a foreign subject are worth two repeated runs, which tell whether they
  /// are noise; empty: all are.
  std::function<bool(const Verdicts&)> worth_repeating;
  /// Called before each run with its name: "plain run".
  std::function<void(std::string_view run)> on_run;
};

/// Runs the case once in each way that the laws need. Throws std::invalid_argument for an invalid
/// case, NotJudged for one whose plain run needs more memory than a run may use, and NotJudged and
/// SubjectBroken where the subject throws them. Its other exceptions become part of the evidence.
Evidence gather(const Case& c, Subject& subject, Workspace& workspace,
                const GatherOptions& options = {});

/// Gathers the evidence that the laws need, and judges by them. Where a foreign subject violates
/// one, both runs are repeated: a violation that does not repeat is one of `repeatable`.
Verdicts judge_case(const Case& c, Subject& subject, Workspace& workspace,
                    const GatherOptions& options);
Verdicts judge_case(const Case& c, Subject& subject, Workspace& workspace,
                    const LawSet& laws = all_laws());

}  // namespace rematch
