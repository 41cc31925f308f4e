#include "properties/plans/optimum.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "properties/forecast/forecast.h"

namespace rematch {
namespace {

// Layers [begin, end) in a segment are a body: items from left to right, each a layer or a nested
// segment. A recomputation runs the body once, and stops at the last thing that it saves; then the
// backward goes through its items from right to left. Tensors that an item saves are live while the
// items behind it are run and differentiated. So the peak of a body is that of its first item, or
// the bytes that this one saves and the peak of the others.

/// Nodes of plans, shared among options: an item and those behind it.
struct Item {
  int begin = 0;
  int end = 0;
  int nested = -1;  ///< First item of a segment; -1: none, the item is a layer.
  int next = -1;
};
constexpr int kLayer = -2;  ///< Item::nested of a layer.

/// A way to go through the items from one on. Peaks are without what other items hold.
struct Option {
  std::int64_t cost = 0;  ///< That of the layers that are run again.
  std::int64_t pass = 0;  ///< Peak of a run that keeps nothing.
  std::int64_t run = 0;   ///< Peak of a run that keeps what is saved.
  std::int64_t back = 0;  ///< Peak of the backward.
  int item = -1;

  bool beats(const Option& o) const {
    return cost <= o.cost && pass <= o.pass && run <= o.run && back <= o.back;
  }
};
using Options = std::vector<Option>;

/// Keeps the options that no other one beats.
void prune(Options& options) {
  std::sort(options.begin(), options.end(), [](const Option& a, const Option& b) {
    return std::tie(a.cost, a.back, a.run, a.pass) < std::tie(b.cost, b.back, b.run, b.pass);
  });
  Options best;
  for (const Option& o : options) {
    if (std::none_of(best.begin(), best.end(), [&](const Option& b) { return b.beats(o); })) {
      best.push_back(o);
    }
  }
  options.swap(best);
}

/// Who else holds the first value of an item. In a recomputation the value that its segment takes
/// is live to the end of the run, but in the backward only if something saved it.
struct Given {
  bool bound = false;  ///< It is the value that the segment takes.
  bool run = false;
  bool back = false;
  std::size_t index() const { return bound ? (back ? 3 : 2) : (back ? 1 : 0); }
};
constexpr std::array kGiven{Given{false, false, false}, Given{false, true, true},
                            Given{true, true, false}, Given{true, true, true}};

class Search {
 public:
  Search(const Chain& chain, const std::vector<std::int64_t>& costs)
      : chain_(chain), cost_before_{0}, layers_(static_cast<int>(chain.layers.size())) {
    for (const std::int64_t cost : costs) cost_before_.push_back(cost_before_.back() + cost);
    const auto size = static_cast<std::size_t>(layers_) + 1;
    bodies_.resize(size * size * kGiven.size());
    segments_.resize(size * size * 2);
    for (int end = 1; end <= layers_; ++end) {
      // Behind the last layer that saves, nothing is recomputed, so no segment need end there.
      if (!layer(end - 1).saves) continue;
      for (int begin = end - 1; begin >= 0; --begin) {
        for (const Given& given : kGiven) find_body(begin, end, given);
        find_segment(begin, end, false);
        find_segment(begin, end, true);
        for (const Given& given : kGiven) {
          add_segment(begin, end, end, given, nullptr);
          prune(body(begin, end, given));
        }
      }
    }
    find_models();
  }

  /// Plans of the model: cost, and peak as `back`.
  const Options& models() const { return models_[1]; }

  std::vector<SegmentSpec> segments(int item) const {
    std::vector<SegmentSpec> list;
    for (; item >= 0; item = items_[static_cast<std::size_t>(item)].next) {
      const Item& i = items_[static_cast<std::size_t>(item)];
      if (i.nested != kLayer) list.push_back({i.begin, i.end, {}, segments(i.nested)});
    }
    return list;
  }

 private:
  const ChainLayer& layer(int i) const { return chain_.layers[static_cast<std::size_t>(i)]; }
  std::int64_t value(int i) const { return chain_.value[static_cast<std::size_t>(i)]; }
  /// The cost of one more run of layers [begin, end).
  std::int64_t cost(int begin, int end) const {
    return cost_before_[static_cast<std::size_t>(end)] -
           cost_before_[static_cast<std::size_t>(begin)];
  }
  std::size_t place(int begin, int end) const {
    return static_cast<std::size_t>(begin * (layers_ + 1) + end);
  }
  Options& body(int begin, int end, const Given& given) {
    return bodies_[place(begin, end) * kGiven.size() + given.index()];
  }
  /// Options of a segment: cost, pass, and the peak of its recomputation and backward as `back`.
  /// `held`: its input is held by others until the backward is over.
  Options& segment(int begin, int end, bool held) {
    return segments_[place(begin, end) * 2 + (held ? 1 : 0)];
  }
  int add_item(const Item& item) {
    items_.push_back(item);
    return static_cast<int>(items_.size()) - 1;
  }
  static bool reads(const ChainLayer& l) { return l.saves_operand || (l.alias && l.saves_output); }

  /// Bytes that stay when a layer has run, and who then holds its output.
  std::int64_t kept(int i, bool held) const {
    const ChainLayer& l = layer(i);
    return l.own + (reads(l) && !held ? value(i) : 0) +
           (!l.alias && l.saves_output ? value(i + 1) : 0);
  }
  bool holds_output(int i, bool held) const {
    const ChainLayer& l = layer(i);
    return l.alias ? held || reads(l) : l.saves_output;
  }
  /// The peaks of a layer's backward.
  std::int64_t back_of(int i, bool held, bool recomputed) const {
    const ChainLayer& l = layer(i);
    if (!l.has_node) return 0;
    const bool freed = recomputed && l.saves_operand && !held;
    return std::max(l.before + kept(i, held) + (freed ? l.backward_freeing : l.backward), l.after);
  }

  void find_body(int begin, int end, const Given& given) {
    Options& options = body(begin, end, given);
    const ChainLayer& l = layer(begin);
    const std::int64_t at_run = (given.run ? 0 : value(begin)) + l.running;
    const std::int64_t at_pass = (given.bound ? 0 : value(begin)) + l.running;
    const std::int64_t at_back = back_of(begin, given.back, true);
    if (begin + 1 == end) {
      options.push_back(
          {cost(begin, end), at_pass, at_run, at_back, add_item({begin, end, kLayer, -1})});
    } else {
      const bool bound = given.bound && l.alias;
      const Given next{bound, bound || holds_output(begin, given.run),
                       holds_output(begin, given.back)};
      const std::int64_t run = kept(begin, given.run);
      const std::int64_t back = kept(begin, given.back);
      for (const Option& o : body(begin + 1, end, next)) {
        options.push_back({o.cost + cost(begin, begin + 1), std::max(at_pass, o.pass),
                           std::max(at_run, run + o.run), std::max(at_back, back + o.back),
                           add_item({begin, end, kLayer, o.item})});
      }
    }
    for (int middle = begin + 1; middle < end; ++middle) {
      if (!layer(middle - 1).saves) continue;
      bool same = true;
      for (int i = begin; i < middle; ++i) same = same && layer(i).alias;
      const bool bound = given.bound && same;
      add_segment(begin, middle, end, given, &body(middle, end, {bound, same, same}));
    }
    prune(options);
  }

  /// Adds the options in which a segment comes first; `others`: those of the items behind it.
  void add_segment(int begin, int middle, int end, const Given& given, const Options* others) {
    if (!layer(begin).may_begin) return;
    Options& options = body(begin, end, given);
    const std::int64_t input = given.run ? 0 : value(begin);
    const std::int64_t saved = given.back ? 0 : value(begin);
    const std::int64_t window = given.bound ? 0 : value(begin);
    for (const Option& s : segment(begin, middle, given.back)) {
      if (others == nullptr) {
        options.push_back(
            {s.cost, window + s.pass, input, s.back, add_item({begin, middle, s.item, -1})});
        continue;
      }
      for (const Option& o : *others) {
        options.push_back({s.cost + o.cost + cost(begin, middle), std::max(window + s.pass, o.pass),
                           std::max(input + s.pass, input + o.run),
                           std::max(s.back, saved + o.back),
                           add_item({begin, middle, s.item, o.item})});
      }
    }
  }

  void find_segment(int begin, int end, bool held) {
    Options& options = segment(begin, end, held);
    const std::int64_t input = held ? 0 : value(begin);
    for (const Option& o : body(begin, end, {true, true, held})) {
      const std::int64_t recomputed = layer(end - 1).before + input + o.run;
      options.push_back({o.cost, o.pass, 0, std::max(recomputed, o.back), o.item});
    }
    prune(options);
  }

  /// The model from layer `begin` on, whose input is held or not.
  void find_models() {
    std::vector<std::array<Options, 2>> from(static_cast<std::size_t>(layers_) + 1);
    for (const bool held : {false, true}) {
      const std::int64_t output = held ? 0 : value(layers_);
      from.back()[held ? 1 : 0].push_back(
          {0, 0, 0, std::max(chain_.with_output + output, chain_.without_output), -1});
    }
    for (int begin = layers_ - 1; begin >= 0; --begin) {
      for (const bool held : {false, true}) {
        Options& options = from[static_cast<std::size_t>(begin)][held ? 1 : 0];
        const std::int64_t input = held ? 0 : value(begin);
        const std::int64_t at =
            std::max(chain_.forward + input + layer(begin).running, back_of(begin, held, false));
        const bool holds = holds_output(begin, held);
        for (const Option& o : from[static_cast<std::size_t>(begin) + 1][holds ? 1 : 0]) {
          options.push_back({o.cost, 0, 0, std::max(at, kept(begin, held) + o.back),
                             add_item({begin, begin + 1, kLayer, o.item})});
        }
        bool same = true;
        for (int end = begin + 1; end <= layers_ && layer(begin).may_begin; ++end) {
          same = same && layer(end - 1).alias;
          // The segment itself holds its input until its backward is over.
          for (const Option& s : segment(begin, end, true)) {
            for (const Option& o : from[static_cast<std::size_t>(end)][same ? 1 : 0]) {
              const std::int64_t most = std::max({chain_.forward + s.pass, s.back, o.back});
              options.push_back(
                  {s.cost + o.cost, 0, 0, input + most, add_item({begin, end, s.item, o.item})});
            }
          }
        }
        prune(options);
      }
    }
    models_ = from.front();
    for (Option& o : models_[1]) o.back = std::max(o.back, chain_.rest);
    prune(models_[1]);
  }

  const Chain& chain_;
  std::vector<std::int64_t> cost_before_;
  int layers_;
  std::vector<Item> items_;
  std::vector<Options> bodies_;
  std::vector<Options> segments_;
  std::array<Options, 2> models_;
};

}  // namespace

Frontier frontier_of(const Case& c, std::vector<std::int64_t> costs) {
  if (costs.empty()) costs.assign(c.layers.size(), 1);
  if (costs.size() != c.layers.size() ||
      std::any_of(costs.begin(), costs.end(), [](std::int64_t cost) { return cost <= 0; })) {
    throw std::invalid_argument(
        fmt::format("expected a positive cost for each of {} layers, got {} numbers: {}",
                    c.layers.size(), costs.size(), fmt::join(costs, ", ")));
  }
  const Geometry geometry = validate(c);
  const Chain chain = chain_of(c, geometry);
  const Search search(chain, costs);
  Frontier frontier;
  Case planned = c;
  for (const Option& o : search.models()) {
    planned.plan = {};
    planned.plan.segments = search.segments(o.item);
    const Forecast f = forecast(planned, validate(planned));
    BestPlan best{planned.plan.segments, promise_of(f), 0};
    for (std::size_t i = 0; i < costs.size(); ++i) best.cost += (f.executions[i] - 1) * costs[i];
    frontier.exact = frontier.exact && best.promise.peak_bytes == o.back && best.cost == o.cost;
    frontier.plans.push_back(std::move(best));
  }
  return frontier;
}

}  // namespace rematch
