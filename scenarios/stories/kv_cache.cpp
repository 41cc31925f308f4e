#include <fmt/format.h>

#include <algorithm>

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

/// Whether a quantity of each chunk is the plain run's.
std::vector<bool> same_by_chunk(const Record& plain, const Record& other, Quantity quantity) {
  std::vector<bool> same;
  for (std::size_t i = 0; i < plain.observations.size(); ++i) {
    const Observation& o = plain.observations[i];
    if (o.quantity != quantity) continue;
    same.push_back(values_of(plain, o) == values_of(other, other.observations[i]));
  }
  return same;
}

std::string words(const std::vector<bool>& same) {
  std::string text;
  for (std::size_t i = 0; i < same.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::string(same[i] ? "right" : "wrong");
  }
  return text;
}

void run(const Options& /*options*/, Report& report) {
  EngineSubject right;
  EngineSubject as_left(find_fault("S3")->make());
  const Case c = chunks();
  tell_case(c, report);
  report.say(
      "A sequence is trained in three chunks. The cache gives each the keys and values of the four "
      "tokens before it, and then takes in the chunk's own.");
  const Record plain = record_of(c, right, false);
  Table& table = report.table("Chunk by chunk, beside the plain run",
                              {"recomputation", "output", "gradient of the input"});
  struct Row {
    const char* name;
    Subject& subject;
    std::vector<bool> outputs = {};
    std::vector<bool> gradients = {};
  };
  std::vector<Row> rows{{"finds the cache that its forward found", right},
                        {"finds the cache that its forward left", as_left}};
  for (Row& row : rows) {
    const Record record = record_of(c, row.subject, true);
    row.outputs = same_by_chunk(plain, record, Quantity::output);
    row.gradients = same_by_chunk(plain, record, Quantity::input_gradient);
    table.row({row.name, words(row.outputs), words(row.gradients)});
  }
  const auto all = [](const std::vector<bool>& same) {
    return std::find(same.begin(), same.end(), false) == same.end();
  };
  const auto none = [](const std::vector<bool>& same) {
    return std::find(same.begin(), same.end(), true) == same.end();
  };
  report.claim(all(rows[0].outputs) && all(rows[0].gradients),
               "A recomputation that finds the cache as its forward found it, and leaves it alone, "
               "gives the plain run's bits.");
  report.claim(all(rows[1].outputs) && none(rows[1].gradients),
               "One that finds what its forward left attends to tokens of its own chunk where "
               "earlier ones were. This cache keeps its size, so that no shape is wrong: outputs "
               "and losses are right, and the gradients of every chunk are not.");
  claim_law_finds(c, as_left, "the recomputation that finds what its forward left",
                  "input-gradients", report);
}

}  // namespace
}  // namespace rematch::scenarios::kv_cache_story

REMATCH_STORY(kv_cache){
    "kv_cache",
    "My model keeps keys and values of earlier tokens in a cache. With gradient checkpointing the "
    "backward complains about shapes. What went wrong?",
    "https://github.com/huggingface/transformers/issues/28056",
    "The forward appended to the cache, and the recomputation met more keys than its forward had. "
    "A recomputation needs the cache of its own forward and must not change it. Where no shape "
    "gives it away, the gradients are silently wrong.",
    kv_cache_story::run,
    {"Train with `use_cache=False`. A function that appends to a cache which it captured is not "
     "the same function in its recomputation: pass cached tensors as arguments, and return the new "
     "ones. The non-reentrant variant notices other shapes, the reentrant one does not.",
     {{"N6.other_shape", "with_early_stop", R"("other metadata")"},
      {"N6.other_shape", "reentrant", R"("no error")"}}}};
