#pragma once

// README.md, sections 7 and 8, says what is kept and what is compared.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/ambient/op_watcher.h"
#include "engine/tensor/tensor.h"

namespace rematch {

/// How closely a recomputation is compared with the forward.
enum class DeterminismCheck : std::uint8_t {
  none,      ///< Nothing but what the graph reads: its shape and dtype.
  metadata,  ///< The sequence of ops, the versions of captured tensors, and of every saved tensor
             ///< its shape and dtype.
  values,    ///< Those, and a hash over the bits of every saved tensor. Non-reentrant only.
};

/// Whether the results of an op are kept for the recomputation. `must` and `prefer` are alike here;
/// they differ for who compiles the graph.
enum class Keep : std::uint8_t { must_recompute, prefer_recompute, prefer_save, must_save };

/// One op of a region: the `index`-th of its name, from 0, in the order in which the forward runs.
struct OpInstance {
  std::string_view op;
  int index = 0;
};

class Region;

/// Leaves a recomputation that has all it is for. No std::exception, so that a function that
/// handles its own errors does not swallow it.
struct RecomputationComplete {
  const Region* region;
};

/// Selective checkpointing. Asked in the forward only, once for each op that makes tensors: ops in
/// place, views and casts are always done again.
using Policy = std::function<Keep(const OpInstance&)>;

/// The ops of a checkpointed region as its forward ran them: what a recomputation is held against,
/// and the results that a policy kept for it. Whatever else a function depends on (flags, modes,
/// weights, tensors that it captured) shows here, as another op, other arguments, another operand,
/// or another version; numbers that it computes by itself and puts into tensors do not.
///
/// An operand that changed is refused even where the gradient does not depend on it, as a bias's
/// does not.
class Region {
 public:
  /// Without `versions` operands that changed in place are not noticed.
  Region(DeterminismCheck check, Policy policy, bool versions = true);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  /// False: there is nothing to watch.
  bool watched() const { return check_ != DeterminismCheck::none || policy_; }

  /// Ops and reads of the forward so far.
  std::size_t seen() const { return seen_; }
  /// Ops of the forward so far, if it is watched.
  std::size_t ops() const { return steps_.size(); }
  /// "moe (op 1)": the last of the first `ops` ops, of which there must be one.
  std::string last_of(std::size_t ops) const;

  /// Where an operand comes from.
  struct Operand {
    enum class Origin : std::uint8_t { undefined, input, result, other };
    Origin origin{};
    /// other: made before the function ran, or on another thread.
    bool outside = false;
    /// input: its number, the first of those with one storage; result: its number among the
    /// results of all ops so far.
    std::int64_t place = 0;
    std::uint64_t storage = 0;
    std::uint64_t version = 0;
  };

  /// Tells where tensors come from while the function runs.
  class Sources {
   public:
    explicit Sources(std::span<const Tensor> inputs);
    Operand of(const Tensor& t) const;
    void add_results(std::span<const Tensor> results);
    const std::vector<std::uint64_t>& inputs() const { return inputs_; }

   private:
    std::uint64_t began_;
    std::vector<std::uint64_t> inputs_;
    std::vector<std::uint64_t> results_;
  };

  /// Notes the ops of the forward, as seen by the watchers around it as well.
  class Forward final : public OpWatcher {
   public:
    Forward(Region& region, std::span<const Tensor> inputs);
    ~Forward() override;
    bool recall(const OpCall& call, std::span<Tensor> results) override;
    void done(const OpCall& call, std::span<const Tensor> results) override;
    void failed(const OpCall& call) noexcept override;
    void read(const Tensor& t) override;

   private:
    Region& region_;
    OpWatcher* outer_;
    Sources sources_;
  };

  /// Compares the ops of a recomputation and hands out what was kept. recall() and read() throw
  /// CheckpointError, and RecomputationComplete after end().
  class Recomputation final : public OpWatcher {
   public:
    Recomputation(Region& region, std::span<const Tensor> inputs)
        : region_(region), sources_(inputs) {}
    bool recall(const OpCall& call, std::span<Tensor> results) override;
    void done(const OpCall& call, std::span<const Tensor> results) override;
    void failed(const OpCall& /*call*/) noexcept override { --steps_; }
    void read(const Tensor& t) override;
    /// The function ran to its end: it must have run all ops.
    void finish() const;
    /// Whatever the function still does, and did not do in the forward, is not done.
    void end() { over_ = true; }
    bool over() const { return over_; }

   private:
    void check_operands(const OpCall& call);
    void check_step(const OpCall& call) const;

    Region& region_;
    Sources sources_;
    std::size_t steps_ = 0;
    bool over_ = false;
  };

  /// Ops of the forward that are still to come are not missed before this was called.
  void forward_is_over() { complete_ = true; }
  /// A recomputation ended well: what was kept has served, unless the forward is still under way.
  void served() noexcept;

 private:
  struct Step {
    std::string_view op;
    std::uint64_t attributes = 0;
    std::uint64_t shapes = 0;  ///< Hash over shapes and dtypes of the operands.
    std::size_t first_operand = 0;
    /// Into kept_; -1: to be computed again.
    int kept = -1;
  };
  struct Kept {
    std::vector<Tensor> results;
    std::vector<std::uint64_t> versions;
  };

  bool wants(std::string_view op);

  DeterminismCheck check_;
  Policy policy_;
  bool versions_;
  bool complete_ = false;
  std::size_t seen_ = 0;
  std::vector<Step> steps_;
  std::vector<Operand> operands_;
  /// Tensors that no op of the region made, and that something other than an op read.
  std::vector<Operand> reads_;
  /// Input i of a recomputation is this input of the forward: the first with the same storage.
  std::vector<std::int64_t> canonical_;
  std::vector<Kept> kept_;
  std::vector<std::pair<std::string_view, int>> counts_;
};

}  // namespace rematch
