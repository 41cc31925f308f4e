#pragma once

#include <span>
#include <utility>

#include "engine/ambient/ambient.h"
#include "engine/ambient/op_watcher.h"

namespace rematch {

/// Passes the ops of its scope on to the surrounding watcher, if any. By itself it changes nothing;
/// derive from it to observe ops, or to answer instead of that watcher.
class PassingWatcher : public OpWatcher {
 public:
  PassingWatcher() : outer_(std::exchange(ambient().ops, this)) {}
  ~PassingWatcher() override { ambient().ops = outer_; }
  PassingWatcher(const PassingWatcher&) = delete;
  PassingWatcher& operator=(const PassingWatcher&) = delete;

  bool recall(const OpCall& call, std::span<Tensor> results) override {
    return outer_ != nullptr && outer_->recall(call, results);
  }
  void done(const OpCall& call, std::span<const Tensor> results) override {
    if (outer_ != nullptr) outer_->done(call, results);
  }
  void failed(const OpCall& call) noexcept override {
    if (outer_ != nullptr) outer_->failed(call);
  }
  void read(const Tensor& t) override {
    if (outer_ != nullptr) outer_->read(t);
  }

 private:
  OpWatcher* outer_;
};

}  // namespace rematch
