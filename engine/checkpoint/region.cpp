#include "engine/checkpoint/region.h"

#include <algorithm>
#include <string>

#include "engine/ambient/ambient.h"
#include "engine/checkpoint/checkpoint.h"

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

std::string text_of(const Tensor& t) {
  return std::string(to_string(t.dtype())) + " " + to_string(t.shape());
}

/// `"fc1.weight" (float32 [4, 3]), operand 1 of linear,`.
std::string name_of(const OpCall& call, int position, const Tensor& t) {
  const std::string place = "operand " + std::to_string(position) + " of " + std::string(call.op);
  if (t.name().empty()) return place + " (" + text_of(t) + ")";
  return "\"" + std::string(t.name()) + "\" (" + text_of(t) + "), " + place + ",";
}

}  // namespace

Region::Region(DeterminismCheck check, Policy policy) : check_(check), policy_(std::move(policy)) {}

Region::~Region() {
  for (Kept& kept : kept_) {
    for (Tensor& t : kept.results) t.storage()->drop();
  }
}

bool Region::wants(std::string_view op) {
  auto count = std::find_if(counts_.begin(), counts_.end(),
                            [&](const auto& entry) { return entry.first == op; });
  if (count == counts_.end()) count = counts_.insert(count, {op, 0});
  const Keep keep = policy_({op, count->second++});
  return keep == Keep::must_save || keep == Keep::prefer_save;
}

Region::Forward::Forward(Region& region)
    : region_(region), outer_(ambient().ops), began_(Storage::next_id()) {
  if (region_.watched()) ambient().ops = this;
}

Region::Forward::~Forward() { ambient().ops = outer_; }

bool Region::Forward::recall(const OpCall& call, std::span<Tensor> results) {
  Step step{call.op, call.attributes, signature_of(call), -1};
  for (const Tensor* t : call.operands) {
    if (!t->defined()) continue;
    const Storage& storage = *t->storage();
    if (storage.is_older_than(began_)) region_.reads_.push_back({storage.id(), storage.version()});
  }
  if (call.makes_tensors && region_.policy_ && region_.wants(call.op)) {
    step.kept = static_cast<int>(region_.kept_.size());
    region_.kept_.emplace_back();
  }
  region_.steps_.push_back(step);
  return outer_ != nullptr && outer_->recall(call, results);
}

void Region::Forward::done(const OpCall& call, std::span<const Tensor> results) {
  if (outer_ != nullptr) outer_->done(call, results);
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

bool Region::Replay::recall(const OpCall& call, std::span<Tensor> results) {
  const bool checked = region_.check_ != DeterminismCheck::none;
  const std::size_t index = steps_++;
  if (index >= region_.steps_.size()) {
    if (!checked || !region_.complete_) return false;
    throw CheckpointError("[checkpoint] the replay runs more ops than the forward: " +
                          std::string(call.op) + " comes after the last of " +
                          std::to_string(index) + "; the function must do the same each time");
  }
  const Step& step = region_.steps_[index];
  if (checked) {
    check_step(call);
    check_operands(call);
  }
  if (step.kept < 0 || step.op != call.op) return false;
  Kept& kept = region_.kept_[static_cast<std::size_t>(step.kept)];
  if (kept.results.size() != results.size()) {
    throw CheckpointError("[checkpoint] what the policy kept of " + std::string(call.op) + " (op " +
                          std::to_string(index) +
                          ") was used up by an earlier replay: a region with a policy can be "
                          "walked back once");
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (kept.results[i].version() != kept.versions[i]) {
      throw CheckpointError("[checkpoint] what the policy kept of " + std::string(call.op) +
                            " (op " + std::to_string(index) + ", " + text_of(kept.results[i]) +
                            ") was changed in place since; have it recomputed, or clone() it");
    }
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    kept.results[i].storage()->drop();
    results[i] = std::move(kept.results[i]);
  }
  kept.results.clear();
  return true;
}

void Region::Replay::check_step(const OpCall& call) const {
  const std::size_t index = steps_ - 1;
  const Step& step = region_.steps_[index];
  const auto fail = [&](const std::string& expected, const std::string& got) {
    throw CheckpointError("[checkpoint] the replay does not do what the forward did: op " +
                          std::to_string(index) + " was " + expected + ", the replay runs " + got +
                          "; look for a flag, a training mode, or a decision on values that "
                          "changed in between");
  };
  const std::string op(step.op);
  if (step.op != call.op) fail(op, std::string(call.op));
  if (step.attributes != call.attributes) fail(op, op + " with other arguments");
  if (step.operands != signature_of(call)) fail(op, op + " on other shapes or dtypes");
}

void Region::Replay::check_operands(const OpCall& call) {
  const std::vector<Read>& reads = region_.reads_;
  int position = 0;
  for (const Tensor* t : call.operands) {
    const int operand = position++;
    if (!t->defined() || !t->storage()->is_older_than(began_)) continue;
    const std::uint64_t storage = t->storage()->id();
    for (std::size_t seen = 0; seen < reads.size(); ++seen) {
      if (reads_ >= reads.size()) reads_ = 0;
      const Read& read = reads[reads_++];
      if (read.storage != storage) continue;
      if (read.version != t->version()) {
        throw CheckpointError("[checkpoint] " + name_of(call, operand, *t) +
                              " was changed in place since the forward: version " +
                              std::to_string(read.version) + " expected, got " +
                              std::to_string(t->version()) +
                              "; the replay would compute with the new values");
      }
      break;
    }
  }
}

void Region::Replay::finish() const {
  if (region_.check_ == DeterminismCheck::none || !region_.complete_) return;
  if (steps_ >= region_.steps_.size()) return;
  throw CheckpointError("[checkpoint] the replay ran " + std::to_string(steps_) +
                        " ops, the forward " + std::to_string(region_.steps_.size()) + ": " +
                        std::string(region_.steps_[steps_].op) +
                        " is missing; the function must do the same each time");
}

}  // namespace rematch
