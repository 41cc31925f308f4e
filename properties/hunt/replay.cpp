#include "properties/hunt/replay.h"

#include "engine/cuda/runtime/device.h"

namespace rematch {

Replay replay(const Case& c, Subject& subject, const LawSet& laws,
              const std::function<void(std::string_view)>& on_run) {
  Replay r;
  r.c = c;
  GatherOptions options;
  options.laws = laws;
  options.timelines = true;
  options.poison_at_once = true;
  options.on_run = on_run;
  try {
    r.verdicts = judge_case(r.c, subject, r.seen, options);
  } catch (const cuda::DeviceLost& lost) {
    if ((laws & laws_named({"survives"})).none()) throw;
    r.seen.plain.clear();
    r.seen.checkpointed.clear();
    Evidence evidence{
        r.c,          r.seen.geometry,    r.seen.forecast, subject.declares().observes,
        r.seen.plain, r.seen.checkpointed};
    evidence.crash = lost.what();
    r.verdicts = judge(evidence, laws);
  }
  return r;
}

}  // namespace rematch
