#include "properties/court/external_planner.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "properties/case/json.h"
#include "properties/subjects/child_process.h"

namespace rematch {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& place, const std::string& expected, const Json& got) {
  throw std::invalid_argument("[planner] " + place + ": expected " + expected + ", got " +
                              got.dump().substr(0, 200));
}

std::int64_t whole(const Json& j, const std::string& place) {
  if (!j.is_number_integer()) refuse(place, "a whole number", j);
  return j.get<std::int64_t>();
}

void check_fields(const Json& j, const std::string& place, std::vector<std::string> known) {
  for (const auto& [key, value] : j.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string names;
    for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
    refuse(place, "no fields but " + names, key);
  }
}

/// Bounds of stages, or throws.
std::pair<int, int> bounds(const PlannerTask& task, const Json& begin, const Json& end,
                           const std::string& place) {
  const std::int64_t b = whole(begin, place);
  const std::int64_t e = whole(end, place);
  if (b < 0 || e <= b || e > std::ssize(task.stages)) {
    refuse(place, "an interval within [0, " + std::to_string(task.stages.size()) + "]",
           Json::array({b, e}));
  }
  return {static_cast<int>(b), static_cast<int>(e)};
}

std::vector<SegmentSpec> segments_in(const PlannerTask& task, const Json& list,
                                     const std::string& place) {
  if (!list.is_array()) refuse(place, "a list of segments", list);
  std::vector<SegmentSpec> segments;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Json& j = list[i];
    const std::string here = place + "[" + std::to_string(i) + "]";
    if (!j.is_object() || !j.contains("begin") || !j.contains("end")) {
      refuse(here, "a segment with begin and end", j);
    }
    check_fields(j, here, {"begin", "end", "nested", "variant"});
    const auto [begin, end] = bounds(task, j["begin"], j["end"], here);
    SegmentSpec s =
        segment_of(task, begin, end,
                   j.contains("nested") ? segments_in(task, j["nested"], here + ".nested")
                                        : std::vector<SegmentSpec>());
    const Json variant = j.value("variant", Json("non_reentrant"));
    if (variant != "non_reentrant" && variant != "reentrant") {
      refuse(here + ".variant", "reentrant or non_reentrant", variant);
    }
    s.choice.variant = variant == "reentrant" ? Variant::reentrant : Variant::non_reentrant;
    segments.push_back(std::move(s));
  }
  return segments;
}

/// Intervals as segments: each lies in the shortest one around it.
std::vector<SegmentSpec> intervals_in(const PlannerTask& task, const Json& list) {
  std::vector<std::pair<int, int>> intervals;
  for (const Json& j : list) {
    if (!j.is_array() || j.size() != 2) refuse("segments", "intervals of two numbers", j);
    intervals.push_back(bounds(task, j[0], j[1], "segments"));
  }
  std::sort(intervals.begin(), intervals.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  });
  std::vector<SegmentSpec> segments;
  for (const auto& [begin, end] : intervals) {
    const SegmentSpec s = segment_of(task, begin, end);
    std::vector<SegmentSpec>* place = &segments;
    while (!place->empty() && s.begin < place->back().end) place = &place->back().nested;
    place->push_back(s);
  }
  return segments;
}

}  // namespace

std::string planner_request(const PlannerTask& task) {
  Json layers = Json::array();
  for (const Stage& s : task.stages) {
    layers.push_back({{"output_bytes", s.output},
                      {"saved_bytes", s.saved},
                      {"workspace_bytes", s.workspace},
                      {"backward_bytes", s.backward},
                      {"forward_cost", s.layers()}});
  }
  return Json{{"layers", layers},
              {"resident_bytes", task.resident},
              {"loss_bytes", task.loss},
              {"budget_bytes", task.budget},
              {"case", Json::parse(to_json(*task.model))}}
      .dump();
}

PlannerAnswer planner_answer(const PlannerTask& task, std::string_view text) {
  const Json j = Json::parse(text, nullptr, false);
  if (j.is_discarded()) {
    throw std::invalid_argument("[planner] expected a line of JSON, got " +
                                std::string(text.substr(0, 200)));
  }
  const auto is_interval = [](const Json& list) {
    return list.is_array() && !list.empty() && list[0].is_array();
  };
  PlannerAnswer answer;
  if (is_interval(j)) {
    answer.plan.segments = intervals_in(task, j);
    return answer;
  }
  if (!j.is_object()) refuse("answer", "an object or a list of intervals", j);
  if (j.contains("refused")) {
    if (!j["refused"].is_string()) refuse("refused", "the reason", j["refused"]);
    return PlannerAnswer::refused("it says: " + j["refused"].get<std::string>());
  }
  if (!j.contains("segments")) refuse("answer", "segments, or refused", j);
  check_fields(j, "answer", {"segments", "promise"});
  const Json& list = j["segments"];
  answer.plan.segments =
      is_interval(list) ? intervals_in(task, list) : segments_in(task, list, "segments");
  if (j.contains("promise")) {
    const Json& p = j["promise"];
    if (!p.is_object()) refuse("promise", "an object", p);
    check_fields(p, "promise", {"peak_bytes", "recomputations"});
    if (p.contains("peak_bytes"))
      answer.plan.promise.peak_bytes = whole(p["peak_bytes"], "promise.peak_bytes");
    if (p.contains("recomputations"))
      answer.plan.promise.recomputations = whole(p["recomputations"], "promise.recomputations");
  }
  return answer;
}

CourtPlanner external_planner(const std::string& command, double seconds,
                              const std::atomic<bool>* stop) {
  return {command, [command, seconds, stop] {
            // The command sees stdin and stdout, not the pipes of a subject.
            auto process = std::make_shared<ChildProcess>("exec 0<&3 1>&4 3<&- 4>&-; " + command);
            return PlannerFunction([process, seconds, stop, command](const PlannerTask& task) {
              const std::string_view line =
                  process->exchange(planner_request(task), ChildProcess::Seconds(seconds), command,
                                    stop, ChildProcess::WhenStopped::end);
              return planner_answer(task, line);
            });
          }};
}

CourtPlanner plan_file(const std::string& name, const std::string& text) {
  return {name, [text] {
            return PlannerFunction([text](const PlannerTask& task) {
              try {
                return planner_answer(task, text);
              } catch (const std::invalid_argument& unfit) {
                return PlannerAnswer::refused(unfit.what());
              }
            });
          }};
}

}  // namespace rematch
