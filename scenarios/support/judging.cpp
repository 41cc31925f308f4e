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

int present(const Record& record, Quantity quantity) {
  return static_cast<int>(
      std::count_if(record.observations.begin(), record.observations.end(),
                    [&](const Observation& o) { return o.quantity == quantity && o.present; }));
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
  report.claim(
      found && held.kept(),
      fmt::format(
          "The law `{}` finds {}: {}. The engine keeps all {} laws that apply to this case.", law,
          who,
          found ? fmt::format("{}, expected {}, got {}", violation->place, violation->expected,
                              violation->got)
                : "it does not",
          held.count(Verdict::kept)));
}

}  // namespace rematch::scenarios
