#include "engine/checkpoint/region.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/ambient/ambient.h"
#include "engine/checkpoint/error.h"

namespace rematch {
namespace {

std::uint64_t signature_of(const OpCall& call) {
  std::uint64_t hash = call.computes_in ? attributes(static_cast<int>(*call.computes_in)) : 0;
  for (const Tensor* t : call.operands) {
    if (!t->defined()) {
      hash = attributes(hash, 1);
      continue;
    }
    hash = attributes(hash, static_cast<int>(t->dtype()), t->shape().rank());
    for (const std::int64_t extent : t->shape().dims()) hash = attributes(hash, extent);
  }
  return hash;
}

/// `"fc1.weight" (float32 [4, 3]), operand 1 of linear,`.
std::string name_of(const OpCall& call, int position, const Tensor& t) {
  const std::string place = "operand " + std::to_string(position) + " of " + std::string(call.op);
  if (t.name().empty()) return place + " (" + text_of(t) + ")";
  return "\"" + std::string(t.name()) + "\" (" + text_of(t) + "), " + place + ",";
}

std::string quoted_name(const Tensor& t) {
  if (t.name().empty()) return "a tensor that the function copies (" + text_of(t) + ")";
  return "\"" + std::string(t.name()) + "\" (" + text_of(t) + ")";
}

std::string changed_text(const std::string& what, std::uint64_t expected, std::uint64_t got) {
  return what + " was changed in place since the forward: version " + std::to_string(expected) +
         " expected, got " + std::to_string(got) +
         "; the recomputation would compute with the new values";
}

}  // namespace

Region::Region(DeterminismCheck check, Policy policy, bool versions)
    : check_(check), policy_(std::move(policy)), versions_(versions) {}

Region::~Region() {
  complete_ = true;
  served();
}

void Region::served() noexcept {
  if (!complete_) return;
  for (Kept& kept : kept_) {
    for (Tensor& t : kept.results) t.storage()->drop();
    kept.results.clear();
  }
}

std::string Region::last_of(std::size_t ops) const {
  return std::string(steps_[ops - 1].op) + " (op " + std::to_string(ops - 1) + ")";
}

// README.md, section 7: what a policy keeps (SE1 to SE10).
bool Region::wants(std::string_view op) {
  auto count = std::find_if(counts_.begin(), counts_.end(),
                            [&](const auto& entry) { return entry.first == op; });
  if (count == counts_.end()) count = counts_.insert(count, {op, 0});
  // Ops that the policy itself runs are none of the region's.
  OpWatcher* const watcher = std::exchange(ambient().ops, nullptr);
  struct Restore {
    OpWatcher* ops;
    ~Restore() { ambient().ops = ops; }
  } restore{watcher};
  const Keep keep = policy_({op, count->second});
  ++count->second;
  return keep == Keep::must_save || keep == Keep::prefer_save;
}

Region::Sources::Sources(std::span<const Tensor> inputs) : began_(Storage::next_id()) {
  inputs_.reserve(inputs.size());
  for (const Tensor& t : inputs) inputs_.push_back(t.storage()->id());
}

Region::Operand Region::Sources::of(const Tensor& t) const {
  using Origin = Operand::Origin;
  if (!t.defined()) return {};
  const Storage& storage = *t.storage();
  Operand found{Origin::other, storage.is_older_than(began_), 0, storage.id(), storage.version()};
  const auto input = std::find(inputs_.begin(), inputs_.end(), found.storage);
  if (input != inputs_.end()) {
    found.origin = Origin::input;
    found.place = input - inputs_.begin();
  } else if (!found.outside) {
    const auto result = std::find(results_.rbegin(), results_.rend(), found.storage);
    if (result != results_.rend()) {
      found.origin = Origin::result;
      found.place = results_.rend() - result;
    }
  }
  return found;
}

void Region::Sources::add_results(std::span<const Tensor> results) {
  for (const Tensor& t : results) results_.push_back(t.storage()->id());
}

Region::Forward::Forward(Region& region, std::span<const Tensor> inputs)
    : region_(region), outer_(ambient().ops), sources_(inputs) {
  const auto& ids = sources_.inputs();
  for (const std::uint64_t id : ids) {
    region_.canonical_.push_back(std::find(ids.begin(), ids.end(), id) - ids.begin());
  }
  if (region_.watched()) ambient().ops = this;
}

Region::Forward::~Forward() { ambient().ops = outer_; }

bool Region::Forward::recall(const OpCall& call, std::span<Tensor> results) {
  ++region_.seen_;
  Step step{call.op, call.attributes, signature_of(call), region_.operands_.size(), -1};
  for (const Tensor* t : call.operands) region_.operands_.push_back(sources_.of(*t));
  if (call.makes_tensors && region_.policy_ && region_.wants(call.op)) {
    step.kept = static_cast<int>(region_.kept_.size());
    region_.kept_.emplace_back();
  }
  region_.steps_.push_back(step);
  return outer_ != nullptr && outer_->recall(call, results);
}

void Region::Forward::done(const OpCall& call, std::span<const Tensor> results) {
  if (outer_ != nullptr) outer_->done(call, results);
  sources_.add_results(results);
  const int kept = region_.steps_.back().kept;
  if (kept < 0) return;
  Kept& entry = region_.kept_[static_cast<std::size_t>(kept)];
  entry.results.reserve(results.size());
  entry.versions.reserve(results.size());
  for (const Tensor& t : results) {
    entry.results.push_back(t.detach());
    entry.versions.push_back(t.version());
    t.storage()->hold();
  }
}

void Region::Forward::failed(const OpCall& call) noexcept {
  if (outer_ != nullptr) outer_->failed(call);
  const Step step = region_.steps_.back();
  region_.steps_.pop_back();
  region_.operands_.resize(step.first_operand);
  if (step.kept >= 0) region_.kept_.pop_back();
  for (auto& [op, count] : region_.counts_) {
    if (op == step.op && call.makes_tensors) --count;
  }
}

void Region::Forward::read(const Tensor& t) {
  ++region_.seen_;
  if (outer_ != nullptr) outer_->read(t);
  const Operand operand = sources_.of(t);
  // Each recomputation makes the results of the region's ops again; all else may have been kept.
  if (operand.origin != Operand::Origin::result) region_.reads_.push_back(operand);
}

void Region::Recomputation::read(const Tensor& t) {
  if (over_) throw RecomputationComplete{&region_};
  if (region_.check_ == DeterminismCheck::none) return;
  const Operand now = sources_.of(t);
  for (const Operand& was : region_.reads_) {
    if (was.storage != now.storage) continue;
    if (was.version == now.version || !region_.versions_) return;
    throw CheckpointError("[checkpoint] " + changed_text(quoted_name(t), was.version, now.version));
  }
}

bool Region::Recomputation::recall(const OpCall& call, std::span<Tensor> results) {
  if (over_) throw RecomputationComplete{&region_};
  const bool checked = region_.check_ != DeterminismCheck::none;
  const std::size_t index = steps_;
  if (index >= region_.steps_.size()) {
    ++steps_;
    if (!checked || !region_.complete_) return false;
    throw CheckpointError("[checkpoint] the recomputation runs more ops than the forward: " +
                          std::string(call.op) + " comes after the last of " +
                          std::to_string(index) + "; the function must do the same each time");
  }
  const Step& step = region_.steps_[index];
  if (checked) {
    check_step(call);
    check_operands(call);
  }
  ++steps_;
  if (step.kept < 0 || step.op != call.op) return false;
  const Kept& kept = region_.kept_[static_cast<std::size_t>(step.kept)];
  if (kept.results.size() != results.size()) {
    throw CheckpointError(
        "[checkpoint] what the policy kept of " + std::string(call.op) + " (op " +
        std::to_string(index) +
        ") was used up by an earlier recomputation: a region with a policy can be "
        "walked back once");
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (kept.results[i].version() != kept.versions[i]) {
      throw CheckpointError("[checkpoint] what the policy kept of " + std::string(call.op) +
                            " (op " + std::to_string(index) + ", " + text_of(kept.results[i]) +
                            ") was changed in place since; have it recomputed, or clone() it");
    }
    // An alias: the recomputation may yet fail, and be tried again.
    results[i] = kept.results[i].detach();
  }
  return true;
}

void Region::Recomputation::done(const OpCall& /*call*/, std::span<const Tensor> results) {
  sources_.add_results(results);
}

// README.md, section 8: what is compared (N6, N10).
void Region::Recomputation::check_step(const OpCall& call) const {
  const Step& step = region_.steps_[steps_];
  const auto fail = [&](const std::string& expected, const std::string& got) {
    throw CheckpointError("[checkpoint] the recomputation does not do what the forward did: op " +
                          std::to_string(steps_) + " was " + expected +
                          ", the recomputation runs " + got +
                          "; look for a flag, a training mode, or a decision on values that "
                          "changed in between");
  };
  const std::string op(step.op);
  if (step.op != call.op) fail(op, std::string(call.op));
  if (step.attributes != call.attributes) fail(op, op + " with other arguments");
  if (step.shapes != signature_of(call)) fail(op, op + " on other shapes or dtypes");
}

void Region::Recomputation::check_operands(const OpCall& call) {
  using Origin = Operand::Origin;
  std::size_t at = region_.steps_[steps_].first_operand;
  int position = 0;
  for (const Tensor* t : call.operands) {
    const int operand = position++;
    const Operand& was = region_.operands_[at++];
    Operand now = sources_.of(*t);
    if (now.origin == Origin::input) {
      now.place = region_.canonical_[static_cast<std::size_t>(now.place)];
    }
    // Other tensors than inputs and results of ops come from outside, or are made again each time.
    const bool same_place = was.origin == now.origin && was.place == now.place &&
                            (was.origin != Origin::other || (!was.outside && !now.outside));
    if (was.storage != now.storage && !same_place) {
      throw CheckpointError("[checkpoint] the recomputation does not do what the forward did: " +
                            name_of(call, operand, *t) +
                            " is another tensor than the one that op " + std::to_string(steps_) +
                            " read there; look for a flag, or for a captured tensor that was "
                            "exchanged in between");
    }
    if (region_.versions_ && was.storage == now.storage && was.origin != Origin::result &&
        was.version != now.version) {
      throw CheckpointError("[checkpoint] " +
                            changed_text(name_of(call, operand, *t), was.version, now.version));
    }
  }
}

void Region::Recomputation::finish() const {
  if (region_.check_ == DeterminismCheck::none || !region_.complete_) return;
  if (steps_ >= region_.steps_.size()) return;
  throw CheckpointError("[checkpoint] the recomputation ran " + std::to_string(steps_) +
                        " ops, the forward " + std::to_string(region_.steps_.size()) + ": " +
                        std::string(region_.steps_[steps_].op) +
                        " is missing; the function must do the same each time");
}

}  // namespace rematch
