#include "scenarios/support/judging.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "properties/case/describe.h"
#include "properties/hunt/gather.h"
#include "properties/subjects/engine_subject.h"

namespace rematch::scenarios {
namespace {

template <class T>
void append(std::span<const std::byte> bytes, std::vector<double>& values) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T value{};
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    values.push_back(static_cast<double>(value));
  }
}

}  // namespace

Record record_of(const Case& c, Subject& subject, bool checkpointed) {
  RunRequest request;
  request.checkpointed = checkpointed;
  Record record;
  subject.run(c, validate(c), request, record);
  return record;
}

std::vector<double> values_of(const Record& record, Quantity quantity) {
  std::vector<double> values;
  for (const Observation& o : record.observations) {
    if (o.quantity != quantity || !o.present) continue;
    if (o.dtype == DType::float64) {
      append<double>(record.bytes_of(o), values);
    } else {
      append<float>(record.bytes_of(o), values);
    }
  }
  return values;
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
  const Verdicts alone = judge(c, wrong, workspace, laws_named({law}) | failure_laws());
  const Violation* const violation = alone.first();
  EngineSubject right;
  const Verdicts held = judge(c, right, workspace);
  const bool found = violation && violation->law == law;
  report.claim(found && held.kept(),
               "The law `{}` finds {}: {}. The engine keeps all {} laws that apply to this case.",
               law, who,
               found ? fmt::format("{}, expected {}, got {}", violation->place, violation->expected,
                                   violation->got)
                     : "it does not",
               held.count(Verdict::kept));
}

}  // namespace rematch::scenarios
