#include "properties/hunt/replay.h"

#include <exception>

#include "properties/hunt/hunt.h"

namespace rematch {

const Breach* Replay::breach() const {
  if (no_answer) return &*no_answer;
  for (const LawVerdict& verdict : verdicts) {
    if (verdict.breach) return &*verdict.breach;
  }
  return nullptr;
}

Replay observe(const Case& c, Subject& subject) {
  Replay seen;
  seen.c = c;
  seen.geometry = validate(c);
  seen.forecast = forecast(c, seen.geometry);
  try {
    RunRequest request;
    request.timeline = true;
    request.detached_layers = seen.forecast.frozen_layers;
    subject.run(c, seen.geometry, request, seen.plain);
    require_fitting(seen.plain);
    request.checkpointed = true;
    request.detached_layers.clear();
    subject.run(c, seen.geometry, request, seen.checkpointed);
  } catch (const CaseTooLarge&) {
    throw;
  } catch (const std::exception& error) {
    seen.no_answer = Breach{kNoAnswer, "the whole run", "two records that laws can be checked on",
                            std::string("exception: ") + error.what()};
  }
  return seen;
}

Replay replay(const Case& c, Subject& subject, const Law* only) {
  Replay seen = observe(c, subject);
  Bench bench;
  for (const Law& law : laws()) {
    if (only != nullptr && law.name != only->name) continue;
    Verdict verdict = judge_or_catch(c, subject, bench, &law);
    if (verdict.breach && verdict.breach->law == kNoAnswer) {
      if (!seen.no_answer) seen.no_answer = std::move(verdict.breach);
      break;
    }
    // Of a run that failed only the law about errors is judged, whichever was asked for.
    const bool judged = verdict.breach ? verdict.breach->law == law.name : verdict.checked.any();
    if (!judged) verdict.breach.reset();
    seen.verdicts.push_back({&law, std::move(verdict.breach), judged});
  }
  return seen;
}

}  // namespace rematch
