#include "properties/laws/events.h"

#include "properties/laws/support.h"

namespace rematch {

std::string event_name(const Case& c, const LiveReading& r) {
  const auto layer = [&] { return layer_name(c, r.layer); };
  switch (r.event) {
    case Event::layer:
      return "after " + layer() + ", execution " + std::to_string(r.execution);
    case Event::node:
      return r.layer < 0
                 ? std::string("after the backward of a cast, a view, the loss or a segment")
                 : "after the backward of " + layer();
    case Event::gradient:
      return "after a leaf took its gradient";
    case Event::forward:
      return "after the forward";
    case Event::backward:
      return "after a backward";
    case Event::graph:
      return "after the graph was dropped";
    case Event::step:
      return "after the optimizer's step";
  }
  return "at an unknown event";
}

std::string place_of(const Case& c, const LiveReading& reading, std::string_view run,
                     std::size_t number) {
  return place_of(reading.step, reading.microbatch) + ", " + event_name(c, reading) + ", in the " +
         std::string(run) + " (event " + std::to_string(number) + ")";
}

}  // namespace rematch
