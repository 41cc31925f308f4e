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
      const bool may_lack = is_stopped || (again && is_kept());
      if (c.kind == Kind::stopped && !(again && may_stop())) {
        return Violation{{}, "a run in " + what, "to its end", "stopped early"};
      }
      if (!is_implied(sent, runs_.unit.gathers, runs_.unit.reduces) &&
          !(may_lack && sent.empty())) {
        return Violation{{},
                         "collectives of a run in " + what,
                         implied(runs_.unit.gathers, runs_.unit.reduces),
                         text_of(sent)};
      }
      // Under autocast the forward says how wide the values are.
      if (again && !sent.empty() && text_of(sent) != text_of(sent_in_forward())) {
        return Violation{{},
                         "collectives of a run in " + what,
                         text_of(sent_in_forward()) + ", as in the forward",
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
    const Readings sent = those_of(runs_.unit, runs_.seen, Phase::backward);
    const std::int64_t gathered = runs_.unit.gathers_back;
    const std::int64_t reduced = runs_.unit.reduces_back;
    const int each = (gathered > 0 ? 1 : 0) + (reduced > 0 ? 1 : 0);
    const int times = each == 0 ? 0 : static_cast<int>(sent.size()) / each;
    const auto wrong = [&](int expected) {
      return Violation{{},
                       "collectives in the backward",
                       std::to_string(expected) + " times " + implied(gathered, reduced),
                       text_of(sent)};
    };
    const int backwards = runs_.e.c.protocol.backwards;
    const int most = wants_gradient() ? backwards : 0;
    const int expected = times == 0 && may_cut() ? 0 : most;
    if (times * each != static_cast<int>(sent.size()) || times != (each == 0 ? 0 : expected)) {
      return wrong(expected);
    }
    for (auto at = sent.begin(); at != sent.end(); at += each) {
      if (!is_implied(Readings(at, at + each), gathered, reduced)) return wrong(expected);
    }
    if (runs_.plain == nullptr) return std::nullopt;
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
  bool is_implied(const Readings& sent, std::int64_t gathers, std::int64_t reduces) const {
    const auto has = [&](Kind kind, std::int64_t elements) {
      const auto is_its = [&](const CollectiveReading& c) { return c.kind == kind; };
      const auto count = std::count_if(sent.begin(), sent.end(), is_its);
      if (count != (elements > 0 ? 1 : 0)) return false;
      if (count == 0) return true;
      const std::int64_t bytes = std::find_if(sent.begin(), sent.end(), is_its)->bytes;
      return bytes == elements * width() || (is_cast() && bytes == elements * 2);
    };
    const auto all = static_cast<std::size_t>((gathers > 0 ? 1 : 0) + (reduces > 0 ? 1 : 0));
    return sent.size() == all && has(Kind::gather, gathers) && has(Kind::reduce, reduces);
  }
  std::string implied(std::int64_t gathers, std::int64_t reduces) const {
    Readings all;
    if (gathers > 0) all.push_back({0, 0, Kind::gather, {}, 0, gathers * width()});
    if (reduces > 0) all.push_back({0, 0, Kind::reduce, {}, 0, reduces * width()});
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

  /// Whether the operand of the unit requires a gradient, as the plain run says.
  bool wants_gradient() const {
    const Evidence& e = runs_.e;
    if (!e.forecast.output_flags.at(0)) return false;
    const int before = runs_.unit.begin - 1;
    if (before < 0) return requires_grad(e.c.protocol, 0);
    return std::any_of(e.plain.grad_flags.begin(), e.plain.grad_flags.end(),
                       [&](const GradFlag& f) {
                         return f.step == runs_.step && f.microbatch == runs_.microbatch &&
                                f.layer == before && f.output == 0 && f.requires_grad;
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
  return u.gathers + u.reduces + u.gathers_back + u.reduces_back > 0;
}

std::optional<Violation> judge_runs(const UnitRuns& runs) { return Judge(runs).judge(); }

}  // namespace rematch
