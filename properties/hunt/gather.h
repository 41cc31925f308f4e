#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "properties/case/geometry.h"
#include "properties/forecast/forecast.h"
#include "properties/laws/law.h"
#include "properties/laws/slope.h"
#include "properties/record/subject.h"

namespace rematch {

/// What evidence refers to. A worker reuses it from case to case, so that memory is not asked for
/// again; it must outlive the evidence and hold that of one case only.
struct Workspace {
  Geometry geometry;
  Facts facts;
  Forecast forecast;
  Record plain;
  Record checkpointed;
  Record repeat;
  Record layers;
  Record displaced;
  SlopeSamples slope;
};

struct GatherOptions {
  /// Runs that none of these laws ask for are left out.
  LawSet laws = all_laws();
  /// Both runs record their timelines.
  bool timelines = false;
  /// Called before each run with what it is: "plain run".
  std::function<void(std::string_view run)> on_run;
};

/// Runs the case once in each way that the laws ask for. Throws std::invalid_argument for an
/// invalid case, NotJudged for one whose plain run needs more memory than a run may use, and what
/// the subject throws of NotJudged and SubjectBroken. Its other exceptions are part of the
/// evidence.
Evidence gather(const Case& c, Subject& subject, Workspace& workspace,
                const GatherOptions& options = {});

/// Gathers what the laws ask for, and judges by them.
Verdicts judge(const Case& c, Subject& subject, Workspace& workspace,
               const LawSet& laws = all_laws());

}  // namespace rematch
