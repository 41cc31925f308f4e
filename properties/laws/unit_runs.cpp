#include "properties/laws/unit_runs.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "properties/case/policy.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

using Kind = CollectiveKind;
using Phase = CollectivePhase;
using Readings = std::vector<CollectiveReading>;

Readings those_of(const UnitReading& u, const Readings& all, Phase phase) {
  Readings its;
  std::copy_if(all.begin(), all.end(), std::back_inserter(its),
               [&](const CollectiveReading& c) { return c.unit == u.unit && c.phase == phase; });
  return its;
}

/// Collectives that are implied, in order, each with its elements.
using Sends = std::vector<std::pair<Kind, std::int64_t>>;

Sends those_that_are(Sends all) {
  std::erase_if(all, [](const auto& sent) { return sent.second == 0; });
  return all;
}

bool is_mark(const CollectiveReading& c) { return c.kind == Kind::ran || c.kind == Kind::stopped; }

/// "1 gather of 32 bytes, 1 reduction of 16 bytes".
std::string text_of(const Readings& sent) {
  std::string text;
  for (const CollectiveReading& c : sent) {
    const std::string_view kind = c.kind == Kind::gather   ? "gather"
                                  : c.kind == Kind::reduce ? "reduction"
                                                           : "other collective";
    text += (text.empty() ? "1 " : ", 1 ") + std::string(kind) + " of " + std::to_string(c.bytes) +
            " bytes";
  }
  return text.empty() ? "none" : text;
}

/// The segments that a layer lies in, the outermost first.
std::vector<SegmentSpec> segments_around(const Case& c, int layer) {
  std::vector<SegmentSpec> found;
  std::vector<SegmentSpec> level = segments_of(c);
  for (;;) {
    const auto its = std::find_if(level.begin(), level.end(), [&](const SegmentSpec& s) {
      return s.begin <= layer && layer < s.end;
    });
    if (its == level.end()) return found;
    found.push_back(*its);
    level = std::vector<SegmentSpec>(found.back().nested);
  }
}

class Judge {
 public:
  explicit Judge(const UnitRuns& runs)
      : runs_(runs), around_(segments_around(runs.e.c, runs.unit.end - 1)) {}

  std::optional<Violation> judge() const {
    if (auto v = judge_phase(Phase::forward)) return v;
    if (auto v = judge_phase(Phase::recomputation)) return v;
    return judge_backward();
  }

 private:
  /// Collectives up to each mark are those of one run.
  std::optional<Violation> judge_phase(Phase phase) const {
    const bool again = phase == Phase::recomputation;
    const UnitReading& u = runs_.unit;
    const Sends expected = those_that_are(
        {{Kind::gather, u.gathers_operand}, {Kind::gather, u.gathers}, {Kind::reduce, u.reduces}});
    const std::string what = again ? "a recomputation" : "the forward";
    Readings sent;
    int marks = 0;
    for (const CollectiveReading& c : those_of(runs_.unit, runs_.seen, phase)) {
      if (!is_mark(c)) {
        sent.push_back(c);
        continue;
      }
      ++marks;
      const bool is_stopped = again && c.kind == Kind::stopped;
      // A segment around the one of the policy runs it without what that keeps.
      if (again && is_kept() && around_.size() == 1 && !sent.empty()) {
        return Violation{{},
                         "collectives of a run in " + what,
                         "none: a policy keeps what it made",
                         text_of(sent)};
      }
      if (c.kind == Kind::stopped && !(again && may_stop())) {
        return Violation{{}, "a run in " + what, "to its end", "stopped early"};
      }
      const bool may_lack = is_stopped || (again && is_kept() && sent.empty());
      const std::size_t count = may_lack ? std::min(sent.size(), expected.size()) : expected.size();
      const Sends its(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(count));
      if (!is_implied(sent, its)) {
        return Violation{
            {}, "collectives of a run in " + what, text_of_implied(expected), text_of(sent)};
      }
      // Under autocast the forward says how wide the values are.
      Readings in_forward = sent_in_forward();
      in_forward.resize(std::min(in_forward.size(), count));
      if (again && text_of(sent) != text_of(in_forward)) {
        return Violation{{},
                         "collectives of a run in " + what,
                         text_of(in_forward) + ", as in the forward",
                         text_of(sent)};
      }
      sent.clear();
    }
    if (!sent.empty()) {
      return Violation{{}, "collectives outside of its runs in " + what, "none", text_of(sent)};
    }
    const auto [least, most] = again ? recomputations() : std::pair(1, 1);
    if (least <= marks && marks <= most) return std::nullopt;
    return Violation{{},
                     again ? "recomputations" : "runs in the forward",
                     std::to_string(marks < least ? least : most),
                     std::to_string(marks)};
  }

  Readings sent_in_forward() const {
    Readings sent = those_of(runs_.unit, runs_.seen, Phase::forward);
    std::erase_if(sent, is_mark);
    return sent;
  }

  std::optional<Violation> judge_backward() const {
    auto violation = judge_backward(false);
    return violation && may_require_more() && !judge_backward(true) ? std::nullopt : violation;
  }
  /// `all`: gradients are wanted of the operand and of what the unit makes, also where the plain
  /// run wants none.
  std::optional<Violation> judge_backward(bool all) const {
    const Readings sent = those_of(runs_.unit, runs_.seen, Phase::backward);
    const UnitReading& u = runs_.unit;
    const bool of_operand = all || requires_gradient(u.begin - 1);
    const bool of_made = all || requires_gradient(u.end - 1);
    const Sends each = those_that_are({{Kind::gather, of_made ? u.gathers_gradient : 0},
                                       {Kind::gather, of_operand ? u.gathers_back : 0},
                                       {Kind::reduce, of_operand ? u.reduces_back : 0}});
    const int backwards = each.empty() ? 0 : runs_.e.c.protocol.backwards;
    const int expected = sent.empty() && may_cut() ? 0 : backwards;
    const auto its = [&](std::size_t call) {
      const auto at = sent.begin() + static_cast<std::ptrdiff_t>(call * each.size());
      return Readings(at, at + static_cast<std::ptrdiff_t>(each.size()));
    };
    bool right = sent.size() == each.size() * static_cast<std::size_t>(expected);
    for (std::size_t call = 0; right && call < static_cast<std::size_t>(expected); ++call) {
      right = is_implied(its(call), each);
    }
    if (!right) {
      return Violation{{},
                       "collectives in the backward",
                       std::to_string(expected) + " times " + text_of_implied(each),
                       text_of(sent)};
    }
    if (all || runs_.plain == nullptr) return std::nullopt;
    const Readings there = those_of(runs_.unit, *runs_.plain, Phase::backward);
    const auto same = [](const CollectiveReading& a, const CollectiveReading& b) {
      return a.kind == b.kind && a.bytes == b.bytes;
    };
    if (std::equal(sent.begin(), sent.end(), there.begin(), there.end(), same)) return std::nullopt;
    return Violation{
        {}, "collectives in the backward", text_of(there) + ", as in the plain run", text_of(sent)};
  }

  /// Each has the elements that the unit says, of the width that values have: under autocast one
  /// of two.
  bool is_implied(const Readings& sent, const Sends& expected) const {
    const auto is_its = [&](const CollectiveReading& c, const Sends::value_type& one) {
      const auto [kind, elements] = one;
      return c.kind == kind &&
             (c.bytes == elements * width() || (is_cast() && c.bytes == elements * 2));
    };
    return std::equal(sent.begin(), sent.end(), expected.begin(), expected.end(), is_its);
  }
  std::string text_of_implied(const Sends& expected) const {
    Readings all;
    for (const auto& [kind, elements] : expected) {
      all.push_back({0, 0, kind, {}, 0, elements * width()});
    }
    return text_of(all) + (is_cast() ? ", or half the bytes" : "");
  }

  std::size_t last_layer() const { return static_cast<std::size_t>(runs_.unit.end - 1); }
  std::int64_t width() const { return runs_.e.c.dtype == DType::float64 ? 8 : 4; }
  bool is_cast() const { return runs_.e.c.protocol.autocast != AutocastSpan::off; }
  /// A policy keeps what was sent, too.
  bool is_kept() const { return kept_by_policy(runs_.e.c, runs_.unit.end - 1); }
  bool may_stop() const {
    return std::any_of(around_.begin(), around_.end(), [](const SegmentSpec& s) {
      return s.choice.variant == Variant::non_reentrant && s.choice.early_stop;
    });
  }

  /// How often at least and at most a recomputation may enter the unit: once for each segment
  /// around it, and at least once for each backward that passes through it.
  std::pair<int, int> recomputations() const {
    if (runs_.plain == nullptr || around_.empty()) return {0, 0};
    const int backwards = runs_.e.c.protocol.backwards;
    const Forecast& f = runs_.e.forecast;
    const bool runs_again = f.saves_known && f.executions.at(last_layer()) > 1;
    const bool passes = runs_again || !those_of(runs_.unit, runs_.seen, Phase::backward).empty();
    return {passes ? backwards : 0, backwards * static_cast<int>(around_.size())};
  }

  /// Whether what a layer makes, or the input (-1), requires a gradient, as the plain run says.
  bool requires_gradient(int layer) const {
    const Evidence& e = runs_.e;
    if (!e.forecast.output_flags.at(0)) return false;
    if (layer < 0) return requires_grad(e.c.protocol, 0);
    return std::any_of(e.plain.grad_flags.begin(), e.plain.grad_flags.end(),
                       [&](const GradFlag& f) {
                         return f.step == runs_.step && f.microbatch == runs_.microbatch &&
                                f.layer == layer && f.output == 0 && f.requires_grad;
                       });
  }
  /// All that a reentrant segment makes requires a gradient if one of its inputs does, which then
  /// may be one that the layers ahead of the unit do not read.
  bool may_require_more() const {
    const Case& c = runs_.e.c;
    const auto reads = [](const LayerSpec& l) { return !l.from.empty(); };
    return runs_.plain != nullptr && std::any_of(c.layers.begin(), c.layers.end(), reads) &&
           ends_reentrant(segments_of(c));
  }
  bool ends_reentrant(const std::vector<SegmentSpec>& segments) const {
    return std::any_of(segments.begin(), segments.end(), [&](const SegmentSpec& s) {
      return (s.choice.variant == Variant::reentrant && s.end <= runs_.unit.begin) ||
             ends_reentrant(s.nested);
    });
  }
  /// No forecast says where layers of the subject's own hand on no gradient.
  bool may_cut() const {
    const auto& layers = runs_.e.c.layers;
    return std::any_of(layers.begin() + runs_.unit.end, layers.end(),
                       [](const LayerSpec& l) { return l.kind == LayerKind::custom; });
  }

  const UnitRuns& runs_;
  std::vector<SegmentSpec> around_;
};

}  // namespace

bool sends_values(const UnitReading& u) {
  return u.gathers_operand + u.gathers + u.reduces + u.gathers_gradient + u.gathers_back +
             u.reduces_back >
         0;
}

std::optional<Violation> judge_runs(const UnitRuns& runs) { return Judge(runs).judge(); }

}  // namespace rematch
