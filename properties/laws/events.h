#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "properties/laws/law.h"

namespace rematch {

/// "step 0, pass 0, after layer 3 (linear), execution 1, in the checkpointed run (event 17)".
std::string place_of(const Case& c, const LiveReading& reading, std::string_view run,
                     std::size_t number);

/// "after layer 3 (linear), execution 1".
std::string event_name(const Case& c, const LiveReading& reading);

/// How often layers are entered in the replays of the first backward.
int layers_replayed(const Forecast& forecast);

/// Calls check(expected, got, number) for the events of a record beside those that the forecast
/// promises, up to the first breach; either may be nullptr, for an event that is missing or too
/// many. Events of the forecast are those of the step at hand.
template <class Check>
std::optional<Breach> for_each_event(const std::vector<LiveReading>& expected,
                                     const std::vector<LiveReading>& got, int steps, Check check) {
  // The forecast tells of two steps at most; the second stands for all that follow.
  std::size_t second = 0;
  while (second < expected.size() && expected[second].step == 0) ++second;
  std::size_t number = 0;
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = step == 0 ? 0 : second; i < (step == 0 ? second : expected.size()); ++i) {
      LiveReading promised = expected[i];
      promised.step = step;
      const LiveReading* const seen = number < got.size() ? &got[number] : nullptr;
      if (std::optional<Breach> breach = check(&promised, seen, number)) return breach;
      ++number;
    }
  }
  if (number == got.size()) return std::nullopt;
  return check(nullptr, &got[number], number);
}

}  // namespace rematch
