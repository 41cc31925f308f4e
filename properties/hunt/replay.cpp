#include "properties/hunt/replay.h"

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
  r.verdicts = judge(r.c, subject, r.seen, options);
  return r;
}

}  // namespace rematch
