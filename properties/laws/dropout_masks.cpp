#include <algorithm>
#include <cstdio>

#include "properties/laws/support.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

constexpr std::string_view kDropoutMasks = "dropout-masks";

std::string text_of(const Draw& d) {
  char hash[24];
  std::snprintf(hash, sizeof(hash), "0x%016llx", static_cast<unsigned long long>(d.hash));
  return std::to_string(d.elements) + (d.elements == 1 ? " element" : " elements") +
         (d.stream == 0 ? "" : " of stream " + std::to_string(d.stream)) + " from offset " +
         std::to_string(d.offset) + ", hash " + hash;
}

/// The noise of rrelu says which operands were negative, and gaussian noise may be reported with
/// the operand that it was added to.
bool depends_on_values(const Evidence& e, const Draw& d) {
  return layer_of(e.c.layers[static_cast<std::size_t>(d.layer)]).noise_depends_on_values;
}

bool same_draw(const Draw& a, const Draw& b, bool compare_hash) {
  return a.stream == b.stream && a.offset == b.offset && a.elements == b.elements &&
         (!compare_hash || a.hash == b.hash);
}

/// The draws of one record by forward and layer.
class DrawTable {
 public:
  DrawTable(const Evidence& e, const Record& record)
      : e_(e),
        first_(static_cast<std::size_t>(e.c.protocol.steps) *
                   static_cast<std::size_t>(e.c.protocol.microbatches) * e.c.layers.size(),
               nullptr),
        executions_(first_.size(), 0),
        count_(first_.size(), 0) {
    for (const Draw& d : record.draws) {
      if (!in_range(d)) {
        stray_ = &d;
        continue;
      }
      const std::size_t at = index(d.step, d.microbatch, d.layer);
      const std::uint64_t execution = std::uint64_t{1} << std::min(d.execution, 63);
      if (d.execution < 63 && (executions_[at] & execution) != 0) stray_ = &d;
      executions_[at] |= execution;
      if (d.execution == 0) first_[at] = &d;
      ++count_[at];
    }
  }

  /// A draw of a layer, forward or run that does not exist, or the second of one run.
  const Draw* stray() const { return stray_; }
  const Draw* of_forward(int step, int microbatch, int layer) const {
    return first_[index(step, microbatch, layer)];
  }
  int count(int step, int microbatch, int layer) const {
    return count_[index(step, microbatch, layer)];
  }

 private:
  bool in_range(const Draw& d) const {
    return d.step >= 0 && d.step < e_.c.protocol.steps && d.microbatch >= 0 &&
           d.microbatch < e_.c.protocol.microbatches && d.layer >= 0 &&
           d.layer < static_cast<int>(e_.c.layers.size()) && d.execution >= 0 &&
           d.execution < e_.forecast.executions[static_cast<std::size_t>(d.layer)];
  }
  std::size_t index(int step, int microbatch, int layer) const {
    return (static_cast<std::size_t>(step) * static_cast<std::size_t>(e_.c.protocol.microbatches) +
            static_cast<std::size_t>(microbatch)) *
               e_.c.layers.size() +
           static_cast<std::size_t>(layer);
  }

  const Evidence& e_;
  std::vector<const Draw*> first_;
  std::vector<std::uint64_t> executions_;
  std::vector<int> count_;
  const Draw* stray_ = nullptr;
};

std::optional<Violation> check_forward(const Evidence& e, const DrawTable& plain,
                                       const DrawTable& checkpointed, int step, int microbatch) {
  for (int layer = 0; layer < static_cast<int>(e.c.layers.size()); ++layer) {
    const auto index = static_cast<std::size_t>(layer);
    const bool draws = e.forecast.layer_draws[index] != 0;
    const auto violation = [&](const char* what, std::string expected, std::string got) {
      return Violation{kDropoutMasks, place_of(e.c, step, microbatch, layer) + what,
                       std::move(expected), std::move(got)};
    };
    const int expected_plain = draws ? 1 : 0;
    if (const int n = plain.count(step, microbatch, layer); n != expected_plain) {
      return violation(", draws of the plain run", std::to_string(expected_plain),
                       std::to_string(n));
    }
    // A layer whose results are recalled draws nothing.
    const int expected_draws = draws ? e.forecast.computations[index] : 0;
    const int n = checkpointed.count(step, microbatch, layer);
    const bool recalled = n > 0 && n < expected_draws && policy_may_keep(e.c.options);
    if (n != expected_draws && !recalled) {
      return violation(", draws", std::to_string(expected_draws), std::to_string(n));
    }
    if (!draws) continue;
    const Draw* a = plain.of_forward(step, microbatch, layer);
    const Draw* b = checkpointed.of_forward(step, microbatch, layer);
    if (a == nullptr || b == nullptr) {
      return violation(", forward", a != nullptr ? text_of(*a) : std::string(kNotRecorded),
                       b != nullptr ? text_of(*b) : std::string(kNotRecorded));
    }
    const auto drawn = (static_cast<std::uint64_t>(b->elements) + 3) / 4 * 4;
    if (b->stream != e.c.layers[index].stream) {
      return violation(", forward, stream", std::to_string(e.c.layers[index].stream),
                       std::to_string(b->stream));
    }
    if (drawn != e.forecast.layer_draws[index]) {
      return violation(", forward, numbers drawn", std::to_string(e.forecast.layer_draws[index]),
                       std::to_string(drawn));
    }
    const bool hash = step <= e.forecast.exact_until_step || !depends_on_values(e, *b);
    if (comparable_forward(e, step, microbatch) && !same_draw(*a, *b, hash)) {
      return violation(", forward", text_of(*a), text_of(*b));
    }
  }
  return std::nullopt;
}

std::optional<Violation> check_dropout_masks(const Evidence& e) {
  const DrawTable plain(e, e.plain);
  const DrawTable checkpointed(e, e.checkpointed);
  for (const DrawTable* table : {&plain, &checkpointed}) {
    if (const Draw* d = table->stray()) {
      return Violation{kDropoutMasks,
                       place_of(d->step, d->microbatch) + ", layer " + std::to_string(d->layer) +
                           ", execution " + std::to_string(d->execution),
                       "no such draw, or no second one", text_of(*d)};
    }
  }
  auto violation = for_each_forward(e.c.protocol, [&](int step, int microbatch) {
    return check_forward(e, plain, checkpointed, step, microbatch);
  });
  if (violation || !e.forecast.values_comparable) return violation;
  for (const Draw& d : e.checkpointed.draws) {
    const Draw& forward = *checkpointed.of_forward(d.step, d.microbatch, d.layer);
    if (d.execution == 0 || same_draw(forward, d, true)) continue;
    return Violation{
        kDropoutMasks,
        place_of(e.c, d.step, d.microbatch, d.layer) + ", execution " + std::to_string(d.execution),
        text_of(forward), text_of(d)};
  }
  return std::nullopt;
}

bool applies_dropout_masks(const Evidence& e) {
  const auto& draws = e.forecast.layer_draws;
  if (!e.forecast.saves_known) return false;
  return std::any_of(draws.begin(), draws.end(), [](auto w) { return w != 0; }) ||
         !e.plain.draws.empty() || !e.checkpointed.draws.empty();
}

}  // namespace

extern const Law dropout_masks_law;
const Law dropout_masks_law{
    .name = kDropoutMasks,
    .statement =
        "A recomputation of a random layer draws what its forward drew, and every forward draws "
        "what the plain run drew.",
    .harm = "Forward and backward use different dropout masks, so gradients are silently wrong.",
    .topic = Topic::randomness,
    .check = check_dropout_masks,
    .reads = {Observable::draws},
    .applies = applies_dropout_masks};

}  // namespace rematch
