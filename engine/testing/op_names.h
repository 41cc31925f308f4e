#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/ambient/op_watcher.h"

namespace rematch::testing {

/// Notes the names of the ops that run in a scope.
class OpNames final : public OpWatcher {
 public:
  OpNames() : outer_(ambient().ops) { ambient().ops = this; }
  ~OpNames() override { ambient().ops = outer_; }
  OpNames(const OpNames&) = delete;
  OpNames& operator=(const OpNames&) = delete;

  bool recall(const OpCall& call, std::span<Tensor> results) override {
    names.emplace_back(call.op);
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

  std::vector<std::string> names;

 private:
  OpWatcher* outer_;
};

}  // namespace rematch::testing
