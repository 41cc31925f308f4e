#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/testing/passing_watcher.h"
#include "properties/subjects/engine_subject.h"

namespace rematch::faulty {

// Parts that faults are made of. None of them is wrong by itself.

/// An engine with `M` in place of its mechanics.
template <class M>
EngineParts with_mechanics() {
  return {std::make_shared<M>(), nullptr};
}

/// An engine with a checkpoint() of its own: C's operator() has the signature of one. Its state is
/// that of one thread.
template <class C>
EngineParts with_checkpoint() {
  auto wrong = std::make_shared<C>();
  return {nullptr, [wrong](const Function& f, const Tensors& in, const CheckpointOptions& options) {
            return (*wrong)(f, in, options);
          }};
}

using Around = std::function<Tensors(const Function&, const Tensors&)>;

inline Tensors run_function(const Function& function, const Tensors& inputs) {
  return function(inputs);
}

/// `function`, whose first run, the forward, goes through `forward` and every later one, a
/// recomputation, through `recomputation`.
inline Function around(const Function& function, Around forward, Around recomputation) {
  auto first = std::make_shared<bool>(true);
  return [function, first, forward = std::move(forward),
          recomputation = std::move(recomputation)](const Tensors& inputs) {
    return std::exchange(*first, false) ? forward(function, inputs)
                                        : recomputation(function, inputs);
  };
}

using Spy = PassingWatcher;

/// Sees the tensors that are saved in a scope on their way to the hooks around it.
class SaveSpy : public SavedTensorHooks {
 public:
  SaveSpy() : outer_(ambient().hooks), scope_(this) {}
  std::unique_ptr<PackedTensor> pack(const Tensor& t) override {
    return outer_ != nullptr ? outer_->pack(t) : nullptr;
  }

 private:
  SavedTensorHooks* outer_;
  HookScope scope_;
};

/// An engine whose recomputations go through one function, and whose forwards through another.
using Run = Tensors(const Function&, const Tensors&);
template <Run* recomputation, Run* forward = run_function>
EngineParts with_runs() {
  return {nullptr, [](const Function& f, const Tensors& in, const CheckpointOptions& options) {
            return checkpoint(around(f, forward, recomputation), in, options);
          }};
}

/// Runs it under a Spy of type S.
template <class S>
Tensors under(const Function& function, const Tensors& inputs) {
  const S spy;
  return function(inputs);
}

/// Versions of the tensors that a recomputation reads are not compared.
class VersionsUnchecked final : public Mechanics {
 public:
  bool compares_versions() const override { return false; }
};

/// Whether ops of that name draw a number for each element of their operand.
inline bool draws(std::string_view op) {
  return op == "dropout" || op == "rrelu" || op == "gaussian_noise";
}

/// All ambient streams, `draws` further.
inline void skip_draws(std::int64_t draws) {
  Streams& streams = ambient().streams;
  for (int i = 0; i < streams.size(); ++i) streams.at(i).draw(draws);
}

/// Fills the memory of `t`, past all that counts writes.
void fill_bytes(const Tensor& t, std::byte value);
/// Copies the memory of one tensor over that of another of the same size, past all that counts
/// writes.
void copy_bytes(const Tensor& from, const Tensor& to);

/// The id of the memory that `t` lies in.
inline std::uint64_t storage_of(const Tensor& t) { return t.storage()->id(); }

/// A place of its own in memory for the values of `t`; outside of every ledger.
std::vector<std::byte> bytes_of(const Tensor& t);

}  // namespace rematch::faulty
