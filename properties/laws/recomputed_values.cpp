#include <algorithm>
#include <tuple>
#include <vector>

#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kRecomputedValues = "recomputed-values";

auto place_in(const LayerValue& v) {
  return std::tuple(v.step, v.microbatch, v.layer, v.saved, v.index);
}

std::string hash_text(std::uint64_t hash) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "bits with hash ";
  for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[hash >> shift & 15];
  return text;
}

/// A layer that ran again and shows nothing of it was not looked at. Early stop may leave a layer
/// before its first result, but not one behind which another layer runs.
std::optional<Violation> find_unseen(const Evidence& e) {
  if (policy_may_keep(e.c.options)) return std::nullopt;
  thread_local std::vector<std::tuple<int, int, int>> seen;
  thread_local std::vector<std::tuple<int, int, int>> again;
  seen.clear();
  again.clear();
  for (const LayerValue& v : e.checkpointed.values) {
    if (v.execution > 0) seen.emplace_back(v.step, v.microbatch, v.layer);
  }
  for (const ExecutionCount& x : e.checkpointed.executions) {
    if (x.count > 1) again.emplace_back(x.step, x.microbatch, x.layer);
  }
  std::sort(seen.begin(), seen.end());
  std::sort(again.begin(), again.end());
  thread_local std::vector<bool> within;
  within.assign(e.c.layers.size() + 1, false);
  for (const SegmentSpec& s : segments_of(e.c)) {
    for (int layer = s.begin; layer + 1 < s.end; ++layer) {
      within[static_cast<std::size_t>(layer)] = true;
    }
  }
  for (std::size_t i = 0; i + 1 < again.size(); ++i) {
    const auto [step, microbatch, layer] = again[i];
    const auto at = static_cast<std::size_t>(layer);
    const bool is_passed = again[i + 1] == std::tuple(step, microbatch, layer + 1);
    if (!is_passed || !within.at(at) || e.forecast.computations[at] < 2) continue;
    if (std::binary_search(seen.begin(), seen.end(), again[i])) continue;
    return Violation{kRecomputedValues, place_of(e.c, step, microbatch, layer),
                     "values of a recomputation", std::string(kNotRecorded)};
  }
  return std::nullopt;
}

std::optional<Violation> check_recomputed_values(const Evidence& e) {
  if (auto unseen = find_unseen(e)) return unseen;
  // The first of each place is the forward's, or that of the first recomputation that saves.
  thread_local std::vector<const LayerValue*> order;
  order.clear();
  for (const LayerValue& v : e.checkpointed.values) order.push_back(&v);
  // By place, and those of one place as the run made them.
  std::sort(order.begin(), order.end(), [](const LayerValue* a, const LayerValue* b) {
    return std::tuple(place_in(*a), a) < std::tuple(place_in(*b), b);
  });
  const LayerValue* wrong = nullptr;
  const LayerValue* right = nullptr;
  for (std::size_t i = 0, first = 0; i < order.size(); ++i) {
    if (place_in(*order[i]) != place_in(*order[first])) first = i;
    if (order[i]->hash == order[first]->hash && order[i]->op == order[first]->op) continue;
    // The earliest of all, as the run went: where it begins.
    if (wrong != nullptr && wrong < order[i]) continue;
    wrong = order[i];
    right = order[first];
  }
  if (wrong == nullptr) return std::nullopt;
  std::string place = place_of(e.c, wrong->step, wrong->microbatch, wrong->layer) + ", execution " +
                      std::to_string(wrong->execution) +
                      (wrong->saved ? ", saved tensor " : ", result ") +
                      std::to_string(wrong->index);
  const auto text = [](const LayerValue& v) {
    return (v.op.empty() ? "" : std::string(v.op) + ", ") + hash_text(v.hash);
  };
  return Violation{kRecomputedValues, std::move(place), text(*right), text(*wrong)};
}

}  // namespace

extern const Law recomputed_values_law;
const Law recomputed_values_law{
    .name = kRecomputedValues,
    .statement =
        "In a recomputation, a layer's ops compute and its graph saves the same bits as before; "
        "the violation names the first value that differs.",
    .harm =
        "The backward works with other values than the forward computed, so gradients are silently "
        "wrong.",
    .topic = Topic::numbers,
    .check = check_recomputed_values,
    .reads = {Observable::recomputed_values},
    // A recomputation that draws afresh computes something else, and is meant to.
    .applies = [](const Evidence& e) { return e.forecast.values_comparable; }};

}  // namespace rematch
