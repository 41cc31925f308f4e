#include <fmt/format.h>

#include "scenarios/support/judging.h"

namespace rematch::scenarios::kv_cache_story {
namespace {

/// A long sequence, in chunks of three tokens: behind the four tokens before it, whose keys and
/// values are in the cache, each attends to these and to itself.
Case chunks() {
  return case_from_json(R"({"format": 1, "seed": 28056, "input": [1, 3, 4], "layers": [
    {"kind": "linear", "features": 8}, {"kind": "kv_cache", "kept": 4},
    {"kind": "linear", "features": 4}, {"kind": "attention", "from": [[1, 0]], "fused": true},
    {"kind": "linear", "features": 2}],
    "plan": {"segments": [{"begin": 0, "end": 4}]},
    "protocol": {"microbatches": 3, "input_requires_grad": true}})");
}

constexpr std::string_view kRight = "right, right, right";
constexpr std::string_view kWrong = "wrong, wrong, wrong";

/// For each chunk, whether its quantity is the plain run's: "right, wrong, right".
std::string by_chunk(const Record& plain, const Record& other, Quantity quantity) {
  std::string text;
  for (std::size_t i = 0; i < plain.observations.size(); ++i) {
    const Observation& o = plain.observations[i];
    if (o.quantity != quantity) continue;
    const bool same = values_of(plain, o) == values_of(other, other.observations[i]);
    text += fmt::format("{}{}", text.empty() ? "" : ", ", same ? "right" : "wrong");
  }
  return text;
}

}  // namespace

void run(const Options& /*options*/, Report& report) {
  EngineSubject right;
  EngineSubject as_left(find_fault("S3")->make());
  const Case c = chunks();
  tell_case(c, report);
  report.say(
      "A sequence is trained in three chunks. The cache gives each the keys and values of the four "
      "tokens before it, and then takes in the chunk's own.");
  const Record plain = record_of(c, false);
  Table& table = report.table("Chunk by chunk, beside the plain run",
                              {"recomputation", "output", "gradient of the input"});
  const auto row = [&](const char* name, Subject& subject) {
    const Record record = record_of(c, subject);
    std::pair seen(by_chunk(plain, record, Quantity::output),
                   by_chunk(plain, record, Quantity::input_gradient));
    table.row({name, seen.first, seen.second});
    return seen;
  };
  const auto found = row("finds the cache that its forward found", right);
  const auto left = row("finds the cache that its forward left", as_left);
  report.claim(found.first == kRight && found.second == kRight,
               "A recomputation that finds the cache as its forward found it, and leaves it alone, "
               "gives the plain run's bits.");
  report.claim(left.first == kRight && left.second == kWrong,
               "One that finds what its forward left attends to tokens of its own chunk where "
               "earlier ones were. This cache keeps its size, so that no shape is wrong: outputs "
               "and losses are right, and the gradients of every chunk are not.");
  claim_law_finds(c, as_left, "the recomputation that finds what its forward left",
                  "input-gradients", report);
}

}  // namespace rematch::scenarios::kv_cache_story
