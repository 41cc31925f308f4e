#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "engine/ambient/ambient.h"
#include "engine/tensor/tensor.h"

namespace rematch {

/// Caches the bfloat16 values of float32 parameters, so that a weight that is used often is cast
/// only once. It holds values without history: each use records its own cast, so the graph is the
/// same with or without a cache hit.
class CastCache {
 public:
  /// The cast that was put for the storage of `t` at its present version, in the shape of `t` and
  /// without history; undefined when there is none.
  Tensor find(const Tensor& t) const;
  /// In place of what was there for an earlier version.
  void put(const Tensor& t, const Tensor& values);
  void clear() noexcept { entries_.clear(); }
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t version = 0;
    Tensor values;
  };
  /// By the id of the storage, which is never given twice.
  std::unordered_map<std::uint64_t, Entry> entries_;
};

/// Autocast for a scope: on, linear() and conv2d() compute on bfloat16 operands; off, as if there
/// were no scope around. Nested scopes share one cache, as in PyTorch: it is emptied when the
/// outermost ends.
class AutocastScope {
 public:
  /// `cache`: casts of parameters are kept until the outermost scope ends.
  explicit AutocastScope(bool enabled = true, bool cache = true);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  Autocast outer_;
  /// Made by this scope, the outermost one; else nullptr.
  std::shared_ptr<CastCache> made_;
};

}  // namespace rematch
