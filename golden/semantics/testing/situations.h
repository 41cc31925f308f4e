#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/tensor/tensor.h"

namespace rematch::golden {

/// A float64 vector that requires grad, and one that does not.
Tensor variable(std::initializer_list<double> values);
Tensor constant(std::initializer_list<double> values);
/// Small multiples of 1/8, off zero, as the probes use them.
Tensor ramp(const Shape& shape, bool requires_grad = true);

enum class Way { plain, reentrant, non_reentrant };
/// As the record writes it: "non_reentrant".
std::string to_string(Way way);
inline constexpr Way kVariants[] = {Way::reentrant, Way::non_reentrant};

/// Calls a function plain or as a checkpoint.
class Call {
 public:
  explicit Call(Way way, CheckpointOptions options = {});
  Tensors operator()(const Function& function, const Tensors& inputs) const {
    return (*this)(function, inputs, options_);
  }
  /// `options.reentrant` is set by the way.
  Tensors operator()(const Function& function, const Tensors& inputs,
                     CheckpointOptions options) const;
  Way way() const { return way_; }

 private:
  Way way_;
  CheckpointOptions options_;
};

/// checkpoint() of one variant that returns one tensor.
Tensor reentrant(const Function& function, const Tensors& inputs, CheckpointOptions options = {});
Tensor non_reentrant(const Function& function, const Tensors& inputs,
                     const CheckpointOptions& options = {});

using Unary = std::function<Tensor(const Tensor&)>;
/// As a function of one tensor.
Function of_one(Unary f);
/// The same, counting its runs.
Function counted(int& runs, Function f);
Function counted_one(int& runs, Unary f);

CheckpointOptions without_early_stop();

Tensor tanh_twice(const Tensor& x);

using Storages = std::vector<std::weak_ptr<Storage>>;
int alive(const Storages& storages);

/// Counts what is saved and read while it is in scope.
class HookCounter {
 public:
  HookCounter();
  int packs = 0;
  int unpacks = 0;

 private:
  FunctionHooks hooks_;
  HookScope scope_;
};

/// The category of an error of the engine, by its class and words; see error_kinds().
std::string category(const std::exception& error);
/// "no error", or the category.
std::string outcome(const std::function<void()>& action);

/// Gradients (undefined: absent), or whatever else is to come out alike.
using Run = std::function<Tensors()>;
/// "right", "silently wrong", or "error: CATEGORY".
std::string judged(const Run& run, const Tensors& reference);

/// Builds a model, runs it by `call`, lets the accident happen if it is asked to, goes backward and
/// returns gradients.
using Situation = std::function<Tensors(const Call& call, bool accident)>;
/// Verdicts plain and in both variants, against a plain run without accident. Each run begins with
/// fresh random streams.
nlohmann::json verdicts(const Situation& situation);

/// Whether `gradient`, called in both variants, gives what a plain call gives and leaves the random
/// state that it leaves. Each begins with fresh random streams.
nlohmann::json gradient_and_state(const std::function<Tensor(const Call& call)>& gradient);

/// The ambient random state, as a value.
std::vector<Generator> random_state();

}  // namespace rematch::golden
