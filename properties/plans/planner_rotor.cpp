#include <algorithm>
#include <limits>

#include "properties/plans/planner.h"

namespace rematch {
namespace {

// Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova (2019), "Optimal checkpointing for
// heterogeneous chains", persistent schedules. Stages l = 0 ... L, the last one being the loss;
// a(l) are bytes of the output of a stage, A(l) all that its backward needs, its output included,
// d(l) those of the gradient of its output, f(l) and b(l) what its forward and its backward take
// beside these. With m bytes, the input of s held elsewhere, [s, t] costs
//
//   C(s, s, m) = u(s)                                                 if m >= all(s, s)
//   C(s, t, m) = min of
//     u(s) + C(s + 1, t, m - A(s))                                    if m >= all(s, t)
//     u(s) + ... + u(k - 1) + C(k, t, m - a(k - 1)) + C(s, k - 1, m)  if m >= none(s, t), s < k <=
//     t
//
//   all(s, t)  = max(d(t) + A(s) + f(s), d(s) + A(s) + b(s))
//   none(s, t) = d(t) + max(a(s) + f(s), a(j - 1) + a(j) + f(j) for s < j < t)
//
// The first keeps what s saves. In the second, [s, k - 1] is a segment, run without saving and
// planned again when its turn comes. Bytes are in units of a 500th of the budget, rounded up.

constexpr int kUnits = 500;
constexpr int kNever = std::numeric_limits<int>::max() / 4;

class Rotor {
 public:
  explicit Rotor(const PlannerTask& task)
      : task_(task),
        bytes_(task.budget - task.resident),
        stages_(static_cast<int>(task.stages.size())) {
    for (const Stage& s : task.stages) {
      // The gradient of a value has its bytes. b has all that a backward adds, d(l - 1) included.
      add(s.output, s.saved, s.output, s.workspace, s.backward, s.layers());
    }
    add(0, 0, 0, task.loss, task.loss, 0);
    cost_.assign(static_cast<std::size_t>((stages_ + 1) * (stages_ + 1) * (kUnits + 1)), kNever);
    cut_.assign(cost_.size(), -1);
    for (int length = 1; length <= stages_ + 1; ++length) {
      for (int s = 0; s + length <= stages_ + 1; ++s) find(s, s + length - 1);
    }
  }

  int cost(int units) const { return cost_[place(0, stages_, units)]; }
  /// Bytes of so many units.
  std::int64_t bytes(int units) const { return (bytes_ * units + kUnits - 1) / kUnits; }

  std::vector<SegmentSpec> segments(int s, int t, int units) const {
    if (s == t) return {};
    const int cut = cut_[place(s, t, units)];
    if (cut < 0) return segments(s + 1, t, units - saved_[index(s)]);
    std::vector<SegmentSpec> list{segment_of(task_, s, cut, segments(s, cut - 1, units))};
    for (SegmentSpec& later : segments(cut, t, units - output_[index(cut) - 1])) {
      list.push_back(std::move(later));
    }
    return list;
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  /// More than there is stays more.
  int units_of(std::int64_t bytes) const {
    return static_cast<int>(
        std::min<std::int64_t>((bytes * kUnits + bytes_ - 1) / bytes_, 2 * kUnits));
  }
  void add(std::int64_t a, std::int64_t saved, std::int64_t d, std::int64_t f, std::int64_t b,
           int layers) {
    output_.push_back(units_of(a));
    saved_.push_back(units_of(saved));
    gradient_.push_back(units_of(d));
    forward_.push_back(units_of(f));
    backward_.push_back(units_of(b));
    layers_.push_back(layers);
  }
  std::size_t place(int s, int t, int units) const {
    return index((s * (stages_ + 1) + t) * (kUnits + 1) + units);
  }
  int cost_of(int s, int t, int units) const {
    return units < 0 ? kNever : cost_[place(s, t, units)];
  }

  void find(int s, int t) {
    const int all = std::max(gradient_[index(t)] + saved_[index(s)] + forward_[index(s)],
                             gradient_[index(s)] + saved_[index(s)] + backward_[index(s)]);
    int none = output_[index(s)] + forward_[index(s)];
    for (int j = s + 1; j < t; ++j) {
      none = std::max(none, output_[index(j) - 1] + output_[index(j)] + forward_[index(j)]);
    }
    none += gradient_[index(t)];
    for (int units = 0; units <= kUnits; ++units) {
      int& best = cost_[place(s, t, units)];
      if (units >= all) {
        best = layers_[index(s)] + (s == t ? 0 : cost_of(s + 1, t, units - saved_[index(s)]));
      }
      if (units < none) continue;
      int run = 0;
      for (int k = s + 1; k <= t; ++k) {
        run += layers_[index(k) - 1];
        const int cost =
            run + cost_of(k, t, units - output_[index(k) - 1]) + cost_of(s, k - 1, units);
        if (cost >= best) continue;
        best = cost;
        cut_[place(s, t, units)] = k;
      }
    }
  }

  const PlannerTask& task_;
  std::int64_t bytes_;
  int stages_;
  std::vector<int> output_, saved_, gradient_, forward_, backward_, layers_;
  std::vector<int> cost_, cut_;
};

PlannerAnswer plan_rotor(const PlannerTask& task) {
  if (task.resident >= task.budget || task.chain->rest > task.budget) {
    return PlannerAnswer::refused("the model alone does not fit");
  }
  const Rotor rotor(task);
  const int cost = rotor.cost(kUnits);
  if (cost >= kNever) return PlannerAnswer::refused("no plan fits");
  // The fewest units that cost no more are what the plan needs.
  int units = kUnits;
  while (units > 0 && rotor.cost(units - 1) == cost) --units;
  PlannerAnswer answer;
  answer.plan.segments = rotor.segments(0, static_cast<int>(task.stages.size()), units);
  answer.plan.promise = {std::max(task.resident + rotor.bytes(units), task.chain->rest),
                         cost - static_cast<int>(task.model->layers.size())};
  return answer;
}

}  // namespace

extern const Planner rotor_planner;
const Planner rotor_planner{
    .name = "rotor",
    .statement =
        "Beaumont et al. (2019), the least recomputation of a persistent schedule, in "
        "500ths of the budget; promises peak bytes and recomputations",
    .plan = plan_rotor};

}  // namespace rematch
