#include "scenarios/support/judging.h"

#include <fmt/format.h>

#include <algorithm>

#include "properties/case/describe.h"
#include "properties/hunt/gather.h"

namespace rematch::scenarios {

Record record_of(const Case& c, Subject& subject, bool checkpointed) {
  RunRequest request;
  request.checkpointed = checkpointed;
  Record record;
  subject.run(c, validate(c), request, record);
  return record;
}

Record record_of(const Case& c, bool checkpointed) {
  EngineSubject engine;
  return record_of(c, engine, checkpointed);
}

std::vector<double> values_of(const Record& record, const Observation& o) {
  const std::span<const std::byte> bytes = record.bytes_of(o);
  std::vector<double> values;
  for (std::size_t at = 0; at < bytes.size(); at += size_of(o.dtype)) {
    values.push_back(element_of(o.dtype, bytes.data() + at));
  }
  return values;
}

std::vector<double> values_of(const Record& record, Quantity quantity) {
  std::vector<double> all;
  for (const Observation& o : record.observations) {
    if (o.quantity != quantity) continue;
    const std::vector<double> values = values_of(record, o);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

bool are_same(const Record& one, const Record& other, std::initializer_list<Quantity> quantities) {
  return std::all_of(quantities.begin(), quantities.end(), [&](Quantity quantity) {
    return values_of(one, quantity) == values_of(other, quantity);
  });
}

std::int64_t saved_bytes(const Record& record, Moment moment) {
  std::int64_t saved = 0;
  for (const ByteReading& b : record.bytes) {
    if (b.moment == moment && b.retained == (moment == Moment::after_backward)) saved = b.saved;
  }
  return saved;
}

void add_segment(Case& c, int begin, int end, Variant variant) {
  SegmentSpec segment{begin, end, {}, {}};
  segment.choice.variant = variant;
  c.plan.segments.push_back(segment);
}

void tell_case(const Case& c, Report& report) {
  std::string words = describe(c);
  while (!words.empty() && words.back() == '\n') words.pop_back();
  std::string text = "The case: `";
  for (const char letter : words) {
    text += letter == '\n' ? std::string("`; `") : std::string(1, letter);
  }
  report.say(text + "`.");
}

void claim_law_finds(const Case& c, Subject& wrong, std::string_view who, std::string_view law,
                     Report& report) {
  Workspace workspace;
  const Verdicts alone = judge_case(c, wrong, workspace, laws_named({law}) | failure_laws());
  const Violation* const violation = alone.first();
  EngineSubject right;
  const Verdicts held = judge_case(c, right, workspace);
  const bool found = violation && violation->law == law;
  report.claim(found && held.kept(),
               "The law `{}` finds {}: {}. The engine keeps every law that applies to this case.",
               law, who,
               found ? fmt::format("{}, expected {}, got {}", violation->place, violation->expected,
                                   violation->got)
                     : "it does not");
}

void claim_law_finds(const Case& c, std::string_view fault, std::string_view who,
                     std::string_view law, Report& report) {
  EngineSubject wrong(find_fault(fault)->make);
  claim_law_finds(c, wrong, who, law, report);
}

}  // namespace rematch::scenarios
