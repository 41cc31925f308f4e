#pragma once

#include "properties/case/case.h"
#include "properties/hunt/gather.h"
#include "properties/laws/law.h"
#include "properties/record/subject.h"

namespace rematch {

/// One case again, looked at from every side.
struct Replay {
  Case c;
  /// Both runs with their timelines, and all else that was gathered.
  Workspace seen;
  Verdicts verdicts;
};

/// Gathers the case once, with timelines, and judges it by all of `laws`. Throws as gather() does;
/// `on_run` as there. The case is taken to be alone in its process: one that loses the device
/// violates `survives`, and throws where `laws` lacks that.
Replay replay(const Case& c, Subject& subject, const LawSet& laws = all_laws(),
              const std::function<void(std::string_view)>& on_run = {});

}  // namespace rematch
