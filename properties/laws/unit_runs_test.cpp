#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/forecast/testing/small_cases.h"
#include "properties/laws/testing/synthetic.h"

namespace rematch {
namespace {

using namespace testing;
using Kind = CollectiveKind;
using Phase = CollectivePhase;
using ChangeOfRuns = std::function<void(Record&)>;

/// A layer that is split by columns, in a segment, and one that is split by rows, without.
Case split_case() {
  Case c = case_of({2, 3}, {dense(3), layer("tanh"), dense(2)});
  c.plan.segments = {segment(0, 2, Variant::non_reentrant)};
  c.protocol.microbatches = 2;
  c.protocol.input_requires_grad = true;
  return c;
}

/// Records that two devices split it. Three columns are padded to four.
void split(Record& r, const Case& c, bool checkpointed) {
  r.units = {{0, 0, 3, true}, {1, 0, 1}, {2, 2, 3}};
  r.units[1].gathers = 8;
  r.units[1].reduces_back = 6;
  r.units[2].reduces = 4;
  r.units[2].gathers_back = 8;
  for (ShardReading& s : r.shards) s = {s.parameter < 2 ? 1 : 2, s.parameter, 0};
  // In the plain run no reentrant segment hides what requires a gradient.
  for (GradFlag& g : r.grad_flags) g.requires_grad = true;
  r.collectives.clear();
  for (int microbatch = 0; microbatch < c.protocol.microbatches; ++microbatch) {
    const auto add = [&](Kind kind, Phase phase, int unit, std::int64_t bytes) {
      r.collectives.push_back({0, microbatch, kind, phase, unit, bytes});
    };
    add(Kind::gather, Phase::forward, 1, 32);
    add(Kind::ran, Phase::forward, 1, 0);
    add(Kind::reduce, Phase::forward, 2, 16);
    add(Kind::ran, Phase::forward, 2, 0);
    for (int call = 0; call < c.protocol.backwards; ++call) {
      add(Kind::gather, Phase::backward, 2, 32);
      if (checkpointed) {
        add(Kind::gather, Phase::recomputation, 1, 32);
        add(Kind::ran, Phase::recomputation, 1, 0);
      }
      if (c.protocol.input_requires_grad) add(Kind::reduce, Phase::backward, 1, 24);
    }
  }
}

/// Tells what is wrong with the records of a case after a change of one; "" if nothing is.
std::string told_of_runs(const Case& c, const ChangeOfRuns& checkpointed = {},
                         const ChangeOfRuns& plain = {}) {
  Synthetic s(c);
  split(s.plain, c, false);
  split(s.checkpointed, c, true);
  if (checkpointed) checkpointed(s.checkpointed);
  if (plain) plain(s.plain);
  const auto violation = s.judge("collectives");
  return violation ? violation->place + ": " + violation->expected + " / " + violation->got : "";
}

bool says(const std::string& text, std::string_view words) {
  return text.find(words) != std::string::npos;
}

/// The first such collective, which may be changed.
CollectiveReading& first_sent(Record& r, Kind kind, Phase phase) {
  for (CollectiveReading& x : r.collectives) {
    if (x.kind == kind && x.phase == phase) return x;
  }
  throw std::logic_error("no such collective");
}
void erase(Record& r, Kind kind, Phase phase) {
  r.collectives.erase(r.collectives.begin() + (&first_sent(r, kind, phase) - r.collectives.data()));
}
void repeat(Record& r, Kind kind, Phase phase) {
  const CollectiveReading twice = first_sent(r, kind, phase);
  r.collectives.insert(r.collectives.begin() + (&first_sent(r, kind, phase) - r.collectives.data()),
                       twice);
}

/// Early stop ends each recomputation before it has sent anything.
void stop(Record& r) {
  std::erase_if(r.collectives, [](const CollectiveReading& x) {
    return x.phase == Phase::recomputation && x.kind == Kind::gather;
  });
  for (CollectiveReading& x : r.collectives) {
    if (x.phase == Phase::recomputation) x.kind = Kind::stopped;
  }
}

TEST_CASE(
    "split layers send once in each run, and once in each backward, as their recomputations") {
  for (const int backwards : {1, 2}) {
    for (const bool waits : {false, true}) {
      for (const bool trains : {false, true}) {
        Case c = split_case();
        c.protocol.backwards = backwards;
        c.protocol.forwards_first = waits;
        c.protocol.input_requires_grad = trains;
        CHECK(told_of_runs(c).empty());
      }
    }
  }
}

TEST_CASE("one collective of a split layer more, less, or of another size is a violation") {
  const auto f = Phase::forward;
  const auto b = Phase::backward;
  const std::pair<std::string_view, ChangeOfRuns> wrong[] = {
      {"unit 1 (layers 0 to 0), collectives of a run in the forward: 1 gather of 32 bytes / none",
       [&](Record& r) { erase(r, Kind::gather, f); }},
      {"1 gather of 32 bytes, 1 gather of 32 bytes",
       [&](Record& r) { repeat(r, Kind::gather, f); }},
      {"1 gather of 31 bytes", [&](Record& r) { --first_sent(r, Kind::gather, f).bytes; }},
      {"1 gather of 16 bytes", [&](Record& r) { first_sent(r, Kind::gather, f).bytes /= 2; }},
      {"1 reduction of 32 bytes",
       [&](Record& r) { first_sent(r, Kind::gather, f).kind = Kind::reduce; }},
      {"unit 2 (layers 2 to 2), collectives of a run",
       [&](Record& r) { erase(r, Kind::reduce, f); }},
      {"runs in the forward: 1 / 0",
       [&](Record& r) {
         erase(r, Kind::gather, f);
         erase(r, Kind::ran, f);
       }},
      {"outside of its runs in the forward", [&](Record& r) { erase(r, Kind::ran, f); }},
      {"to its end / stopped early",
       [&](Record& r) { first_sent(r, Kind::ran, f).kind = Kind::stopped; }},
      {"unit 2 (layers 2 to 2), collectives in the backward: 1 times 1 gather of 32 bytes / none",
       [&](Record& r) { erase(r, Kind::gather, b); }},
      {"unit 1 (layers 0 to 0), collectives in the backward",
       [&](Record& r) { repeat(r, Kind::reduce, b); }},
      {"1 reduction of 12 bytes", [&](Record& r) { first_sent(r, Kind::reduce, b).bytes /= 2; }},
      {"1 gather of 24 bytes",
       [&](Record& r) { first_sent(r, Kind::reduce, b).kind = Kind::gather; }},
      {"outside of all units", [&](Record& r) { first_sent(r, Kind::reduce, b).unit = 9; }},
  };
  for (const auto& [words, change] : wrong) {
    INFO(words);
    CHECK(says(told_of_runs(split_case(), change), words));
    CHECK(says(told_of_runs(split_case(), change), "checkpointed run, "));
    CHECK(says(told_of_runs(split_case(), {}, change), words));
    CHECK(says(told_of_runs(split_case(), {}, change), "plain run, "));
  }
}

TEST_CASE(
    "a recomputation of a split layer sends what its forward sent, but where early stop ends it") {
  const auto r = Phase::recomputation;
  const auto skips = [&](Record& x) { erase(x, Kind::gather, r); };
  const auto twice = [&](Record& x) { repeat(x, Kind::gather, r); };
  const auto none = [&](Record& x) {
    erase(x, Kind::gather, r);
    erase(x, Kind::ran, r);
  };
  const auto again = [&](Record& x) {
    repeat(x, Kind::gather, r);
    repeat(x, Kind::ran, r);
  };
  const auto in_order = [&](Record& x) {
    again(x);
    std::swap(x.collectives[6], x.collectives[7]);
  };
  Case c = split_case();
  CHECK(says(told_of_runs(c, skips),
             "collectives of a run in a recomputation: 1 gather of 32 bytes / none"));
  CHECK(says(told_of_runs(c, twice), "collectives of a run in a recomputation"));
  CHECK(says(told_of_runs(c, none), "recomputations: 1 / 0"));
  // No backward tells of this one, but the forecast does.
  Case frozen_input = c;
  frozen_input.protocol.input_requires_grad = false;
  CHECK(says(told_of_runs(frozen_input, none), "recomputations: 1 / 0"));
  CHECK(says(told_of_runs(c, in_order), "recomputations: 1 / 2"));
  CHECK(told_of_runs(c, stop).empty());
  // Without early stop, or in the reentrant variant, nothing ends it.
  c.plan.segments[0].choice.early_stop = false;
  CHECK(says(told_of_runs(c, stop), "a run in a recomputation: to its end / stopped early"));
  c.plan.segments[0] = segment(0, 2, Variant::reentrant);
  CHECK(told_of_runs(c).empty());
  CHECK(says(told_of_runs(c, stop), "stopped early"));
  // Nothing recomputes what is in no segment.
  c.plan.segments = {segment(1, 2, Variant::non_reentrant)};
  CHECK(says(told_of_runs(c), "recomputations: 0 / 1"));
  c.plan.segments = {segment(0, 2, Variant::non_reentrant)};
  c.plan.segments[0].nested = {segment(0, 1, Variant::non_reentrant)};
  CHECK(told_of_runs(c).empty());
  CHECK(told_of_runs(c, in_order).empty());
  // The plain run recomputes nothing.
  CHECK(says(
      told_of_runs(split_case(), {},
                   [](Record& p) {
                     p.collectives.push_back({0, 0, Kind::gather, Phase::recomputation, 1, 32});
                     p.collectives.push_back({0, 0, Kind::ran, Phase::recomputation, 1, 0});
                   }),
      "plain run, unit 1 (layers 0 to 0), recomputations: 0 / 1"));
}

/// Records in which unit 1 is given some rows of each sequence and makes whole ones, and unit 2 is
/// given whole ones.
void split_by_rows(Record& r, const Case& c, bool checkpointed) {
  split(r, c, checkpointed);
  r.units[1].gathers_operand = 6;
  r.units[2].gathers_gradient = 4;
  Record before = r;
  r.collectives.clear();
  for (CollectiveReading& x : before.collectives) {
    CollectiveReading first = x;
    first.kind = Kind::gather;
    first.bytes = x.unit == 1 ? 24 : 16;
    const bool operand = x.unit == 1 && x.kind == Kind::gather && x.phase != Phase::backward;
    const bool gradient = x.unit == 2 && x.phase == Phase::backward;
    if (operand || gradient) r.collectives.push_back(first);
    r.collectives.push_back(x);
  }
}

TEST_CASE(
    "what a reentrant segment makes may require a gradient that the plain run wants none of") {
  // The segment is given the input, which the last layer reads.
  Case c = split_case();
  c.layers = {layer("relu"), dense(3), joined("add", {-1, 0})};
  c.plan.segments = {segment(0, 1, Variant::reentrant)};
  const auto told = [&](bool more) {
    Synthetic s(c);
    for (const bool checkpointed : {false, true}) {
      Record& r = checkpointed ? s.checkpointed : s.plain;
      r.units = {{0, 0, 3, true}, {1, 1, 2}};
      r.units[1].gathers = 8;
      r.units[1].reduces_back = 6;
      for (ShardReading& shard : r.shards) shard = {1, shard.parameter, 0};
      for (GradFlag& g : r.grad_flags) g.requires_grad = g.layer > 0;
      r.collectives.clear();
      for (int microbatch = 0; microbatch < 2; ++microbatch) {
        r.collectives.push_back({0, microbatch, Kind::gather, Phase::forward, 1, 32});
        r.collectives.push_back({0, microbatch, Kind::ran, Phase::forward, 1, 0});
        if (checkpointed && more) {
          r.collectives.push_back({0, microbatch, Kind::reduce, Phase::backward, 1, 24});
        }
      }
    }
    const auto violation = s.judge("collectives");
    return violation ? violation->place + ": " + violation->expected + " / " + violation->got : "";
  };
  CHECK(told(false).empty());
  CHECK(told(true).empty());
  c.plan.segments = {segment(0, 1, Variant::non_reentrant)};
  CHECK(says(told(true), "0 times none / 1 reduction of 24 bytes"));
  c.plan.segments = {segment(0, 3, Variant::reentrant)};
  CHECK(told(true) != "");
  // Nothing reads another value.
  c.layers.back() = layer("tanh");
  c.plan.segments = {segment(0, 1, Variant::reentrant)};
  CHECK(says(told(true), "0 times none / 1 reduction of 24 bytes"));
}

TEST_CASE(
    "a layer that is given rows gathers these first, and one that makes them their gradient") {
  const auto told = [](const Case& c, const ChangeOfRuns& change) {
    Synthetic s(c);
    split_by_rows(s.plain, c, false);
    split_by_rows(s.checkpointed, c, true);
    change(s.checkpointed);
    const auto violation = s.judge("collectives");
    return violation ? violation->place + ": " + violation->expected + " / " + violation->got : "";
  };
  const auto stopped = [](int sent) {
    return [sent](Record& r) {
      for (int left = 2 - sent; left > 0; --left) {
        const auto is_its = [](const CollectiveReading& x) {
          return x.phase == Phase::recomputation && x.kind == Kind::gather;
        };
        const auto last = std::find_if(r.collectives.rbegin(), r.collectives.rend(), is_its);
        r.collectives.erase(std::next(last).base());
      }
      const auto mark = std::find_if(
          r.collectives.rbegin(), r.collectives.rend(), [](const CollectiveReading& x) {
            return x.phase == Phase::recomputation && x.kind == Kind::ran;
          });
      mark->kind = Kind::stopped;
    };
  };
  for (const int backwards : {1, 2}) {
    Case c = split_case();
    c.protocol.backwards = backwards;
    CHECK(told(c, [](Record&) {}).empty());
  }
  Case c = split_case();
  // Early stop may end the run between both.
  for (const int sent : {0, 1, 2}) CHECK(told(c, stopped(sent)).empty());
  const auto r = Phase::recomputation;
  const auto b = Phase::backward;
  CHECK(says(told(c, [&](Record& x) { erase(x, Kind::gather, r); }),
             "1 gather of 24 bytes, 1 gather of 32 bytes / 1 gather of 32 bytes"));
  CHECK(says(told(c, [&](Record& x) { erase(x, Kind::gather, b); }),
             "1 times 1 gather of 16 bytes, 1 gather of 32 bytes / 1 gather of 32 bytes"));
  CHECK(says(told(c,
                  [&](Record& x) {
                    auto& first = first_sent(x, Kind::gather, b);
                    std::swap(first, *(&first + 1));
                  }),
             "1 gather of 32 bytes, 1 gather of 16 bytes"));
}

TEST_CASE("a policy that keeps what a split layer makes keeps what was sent, too") {
  const auto skips = [](Record& r) {
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      erase(r, Kind::gather, Phase::recomputation);
    }
  };
  Case c = split_case();
  CHECK(told_of_runs(c, skips) != "");
  c.plan.segments[0].choice.keep = {{"linear", -1}};
  CHECK(told_of_runs(c, skips).empty());
  CHECK(says(told_of_runs(c), "none: a policy keeps what it made"));
  // A segment around that one has no policy.
  c.plan.segments[0].choice.keep = {};
  c.plan.segments[0].nested = {segment(0, 1, Variant::non_reentrant)};
  c.plan.segments[0].nested[0].choice.keep = {{"linear", -1}};
  CHECK(told_of_runs(c).empty());
}

TEST_CASE("under autocast values have half their width or all of it, as in the plain run") {
  const auto half = [](Record& r) {
    for (CollectiveReading& x : r.collectives) x.bytes /= 2;
  };
  Case c = split_case();
  CHECK(told_of_runs(c, half, half) != "");
  c.protocol.autocast = AutocastSpan::forward;
  CHECK(told_of_runs(c, half, half).empty());
  CHECK(says(told_of_runs(c, half), "as in the plain run"));
  // A recomputation that is not within autocast sends other widths than its forward.
  const auto half_again = [](Record& r) {
    for (CollectiveReading& x : r.collectives) {
      if (x.phase == Phase::recomputation) x.bytes /= 2;
    }
  };
  CHECK(says(told_of_runs(c, half_again), "as in the forward"));
}

}  // namespace
}  // namespace rematch
