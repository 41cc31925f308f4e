#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "properties/laws/law.h"

namespace rematch {

/// An event as the forecast has it, in a step of the run.
struct ForecastEvent {
  const LiveReading* reading = nullptr;
  int step = 0;
  const LiveReading* operator->() const { return reading; }
  LiveReading in_step() const {
    LiveReading r = *reading;
    r.step = step;
    return r;
  }
  /// The kind of event, when and for which forward; not how many bytes.
  bool is_event_of(const LiveReading& got) const {
    return got.event == reading->event && got.step == step &&
           got.microbatch == reading->microbatch && got.layer == reading->layer &&
           got.execution == reading->execution;
  }
};

/// "step 0, microbatch 0, after layer 3 (linear), execution 1, in the checkpointed run (event 17)".
std::string place_of(const Case& c, const LiveReading& reading, std::string_view run,
                     std::size_t number);

/// "after layer 3 (linear), execution 1".
std::string event_name(const Case& c, const LiveReading& reading);

/// Calls check(expected, got, number) for the events of a record beside those that the forecast
/// has, up to the first violation; either may be nullptr, for an event that is missing or too
/// many. The forecast covers at most two steps; the second stands for all later ones. Events that
/// are not `relevant` are passed over in both.
template <class Relevant, class Check>
std::optional<Violation> for_each_event(const std::vector<LiveReading>& expected,
                                        const std::vector<LiveReading>& got, int steps,
                                        Relevant relevant, Check check) {
  const auto next = [&](std::size_t at) {
    while (at < got.size() && !relevant(got[at])) ++at;
    return at;
  };
  std::size_t second = 0;
  while (second < expected.size() && expected[second].step == 0) ++second;
  std::size_t at = next(0);
  for (int step = 0; step < steps; ++step) {
    const std::size_t end = step == 0 ? second : expected.size();
    for (std::size_t i = step == 0 ? 0 : second; i < end; ++i) {
      if (!relevant(expected[i])) continue;
      const LiveReading* const seen = at < got.size() ? &got[at] : nullptr;
      const ForecastEvent event{&expected[i], step};
      if (std::optional<Violation> violation = check(&event, seen, at)) return violation;
      at = next(at + 1);
    }
  }
  if (at >= got.size()) return std::nullopt;
  return check(nullptr, &got[at], at);
}

inline bool any_event(const LiveReading& /*reading*/) { return true; }

/// Judges all events of both runs by check(expected, got or nullptr, run, number); events that the
/// forecast lacks violate `law` in any case.
template <class Check>
std::optional<Violation> judge_events(const Evidence& e, std::string_view law, Check check) {
  const auto judge_run = [&](const std::vector<LiveReading>& expected, const Record& record,
                             std::string_view run) {
    const auto judge = [&](const ForecastEvent* wanted, const LiveReading* got,
                           std::size_t number) -> std::optional<Violation> {
      if (wanted != nullptr) return check(*wanted, got, run, number);
      return Violation{law, "events of the " + std::string(run), std::to_string(number),
                       std::to_string(record.live.size())};
    };
    return for_each_event(expected, record.live, e.c.protocol.steps, any_event, judge);
  };
  if (auto b = judge_run(e.forecast.live, e.checkpointed, "checkpointed run")) return b;
  return judge_run(e.forecast.plain_live, e.plain, "plain run");
}

}  // namespace rematch
