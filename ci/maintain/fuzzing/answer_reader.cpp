#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "properties/case/json.h"
#include "properties/forecast/engine_facts.h"
#include "properties/forecast/forecast.h"
#include "properties/forecast/measured_facts.h"
#include "properties/laws/law.h"
#include "properties/subjects/answers.h"

namespace {

using namespace rematch;

constexpr std::uint64_t kId = 7;

/// Several of everything that entries of a record name.
const Case& the_case() {
  static const Case c = case_from_json(R"({"format": 1, "seed": 5, "input": [2, 3],
      "layers": [{"kind": "linear", "features": 2}, {"kind": "dropout", "p": 0.5},
                 {"kind": "batch_norm"}, {"kind": "duplicate"}, {"kind": "rrelu"}],
      "plan": {"segments": [{"begin": 1, "end": 3, "variant": "reentrant"},
                            {"begin": 3, "end": 5, "variant": "non_reentrant"}]},
      "protocol": {"steps": 2, "microbatches": 2, "backwards": 2, "reevaluate": true}})");
  return c;
}

/// false: the answer is none, or says so itself.
template <class Read>
bool reads(Read read) {
  try {
    read();
    return true;
  } catch (const std::invalid_argument&) {
  } catch (const NotJudged&) {
  } catch (const SubjectBroken&) {
  }
  return false;
}

}  // namespace

/// Any line is an answer or is refused, and the laws can judge whatever two records were read. The
/// first line answers hello, a script or the plain run, the second one the checkpointed run.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view first = text.substr(0, text.find('\n'));
  reads([&] { (void)read_hello(first); });
  reads([&] { (void)read_export_answer(first, kId, "fuzzed"); });
  static const Geometry geometry = validate(the_case());
  const Case& c = the_case();
  Record plain;
  Record checkpointed;
  if (!reads([&] { read_run_answer(first, kId, "fuzzed", c, geometry, nullptr, plain); })) return 0;
  const std::string_view second = text.substr(std::min(size, first.size() + 1));
  reads([&] { read_run_answer(second, kId, "fuzzed", c, geometry, &plain, checkpointed); });
  const Observables observed =
      Observables::all().without({Observable::displacement, Observable::host_agreement});
  Facts facts;
  engine_facts(c, geometry, true, facts);
  measure_facts(c, geometry, plain, observed, facts);
  Forecast expected;
  forecast(c, geometry, facts, expected);
  (void)judge(Evidence{c, geometry, expected, observed, plain, checkpointed});
  return 0;
}
