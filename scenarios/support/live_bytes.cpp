#include "scenarios/support/live_bytes.h"

namespace rematch::scenarios {

Series live_kib(std::string name, std::span<const LedgerEvent> events) {
  constexpr double kKibibyte = 1024;
  Series series{std::move(name), {}, {}};
  for (const LedgerEvent& event : events) {
    // What only changes its tag moves no byte.
    if (event.kind == LedgerEvent::Kind::retag) continue;
    series.x.push_back(static_cast<double>(series.x.size()));
    series.y.push_back(static_cast<double>(event.live) / kKibibyte);
  }
  return series;
}

}  // namespace rematch::scenarios
