#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "engine/tensor/tensor.h"

namespace rematch {

/// The object that a pack hook leaves in place of a saved tensor.
class PackedTensor {
 public:
  virtual ~PackedTensor() = default;
  /// Called when a vjp needs the tensor.
  virtual Tensor unpack() = 0;
};

/// Intercepts every tensor that the graph saves while these hooks are the innermost ones of the
/// thread (see HookScope).
class SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  /// Returns what to keep instead of `t`, which comes without history; nullptr keeps `t` itself.
  /// May throw.
  virtual std::unique_ptr<PackedTensor> pack(const Tensor& t) = 0;
};

/// Makes `hooks` (nullptr: none) the innermost hooks for a scope.
class HookScope {
 public:
  explicit HookScope(SavedTensorHooks* hooks);
  ~HookScope();
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

 private:
  SavedTensorHooks* previous_;
};

/// Hooks made of two functions: `pack` turns the saved tensor into another (smaller, elsewhere),
/// `unpack` turns it back.
class FunctionHooks final : public SavedTensorHooks {
 public:
  FunctionHooks(std::function<Tensor(const Tensor&)> pack,
                std::function<Tensor(const Tensor&)> unpack)
      : pack_(std::move(pack)), unpack_(std::move(unpack)) {}
  std::unique_ptr<PackedTensor> pack(const Tensor& t) override;

 private:
  std::function<Tensor(const Tensor&)> pack_;
  std::function<Tensor(const Tensor&)> unpack_;
};

/// A tensor kept by a node for its vjp, through the hooks that were in force when it was saved.
/// Holds the values only, never the history, so a node may save its own output.
class SavedTensor {
 public:
  SavedTensor() = default;
  /// Call after the op's kernel has run: hooks may abort a recomputation right here.
  void save(const Tensor& t);
  /// The saved values. Throws std::runtime_error when the tensor was changed in place since it was
  /// saved ("[LinearBackward] saved tensor [4, 3] was changed by an in-place operation ...").
  Tensor get(std::string_view node) const;
  void reset() noexcept;
  ~SavedTensor() { reset(); }
  SavedTensor(const SavedTensor&) = delete;
  SavedTensor& operator=(const SavedTensor&) = delete;
  SavedTensor(SavedTensor&& other) noexcept;
  SavedTensor& operator=(SavedTensor&& other) noexcept;

 private:
  Tensor tensor_;
  std::unique_ptr<PackedTensor> packed_;
  std::uint64_t version_ = 0;
};

}  // namespace rematch
