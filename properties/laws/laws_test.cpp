#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "properties/forecast/testing/small_cases.h"
#include "properties/laws/testing/synthetic.h"
#include "properties/testing/changer.h"

namespace rematch {
namespace {

using namespace testing;

/// One smallest deviation of a record, and the law that must not let it pass. A single wrong entry
/// is the matter of hunt/changed_records_test.cpp, for the laws that read entry by entry.
struct Deviation {
  std::string_view law;
  std::string_view what;
  void (*apply)(Record& plain, Record& checkpointed);
};

void flip_bit(Record& r, Quantity quantity) {
  const Observation& o = observation(r, quantity);
  r.data[o.offset + o.bytes - 1] ^= std::byte{1};
}

template <class Entries, class Matches>
void erase_first(Entries& entries, Matches matches) {
  entries.erase(std::find_if(entries.begin(), entries.end(), matches));
}

void forget(Record& r, Quantity quantity) {
  erase_first(r.observations, [&](const Observation& o) { return o.quantity == quantity; });
}

StreamReading& stream(Record& r, Moment moment, int number) {
  return *std::find_if(r.streams.begin(), r.streams.end(), [&](const StreamReading& s) {
    return s.moment == moment && s.stream == number;
  });
}

Draw& recomputed_draw(Record& r) {
  return *std::find_if(r.draws.begin(), r.draws.end(),
                       [](const Draw& d) { return d.execution == 1; });
}

/// The `number`-th run of a layer in a recomputation.
LiveReading& recomputed_layer(Record& r, int number) {
  for (LiveReading& l : r.live) {
    if (l.event == Event::layer && l.execution > 0 && number-- == 0) return l;
  }
  throw std::invalid_argument("no such event");
}

/// The `number`-th reading of an event in Record::held.
LiveReading& held(Record& r, Event event, int number = 0) {
  for (LiveReading& l : r.held) {
    if (l.event == event && number-- == 0) return l;
  }
  throw std::invalid_argument("no such event");
}

const Deviation kDeviations[] = {
    {"errors", "the checkpointed run fails",
     [](Record&, Record& c) {
       c.error = RecordedError{"checkpoint_error", "x"};
     }},
    {"errors", "the plain run fails",
     [](Record& p, Record&) {
       p.error = RecordedError{"invalid_argument", "x"};
     }},
    {"errors", "both runs fail alike",
     [](Record& p, Record& c) {
       p.error = c.error = RecordedError{"invalid_argument", "x"};
     }},
    {"promises", "one is broken",
     [](Record&, Record& c) {
       c.promises = {{"early_stop", ""}, {"nested", "Not so."}};
     }},
    {"collectives", "nothing says what units there are",
     [](Record&, Record& c) { c.units.clear(); }},
    {"collectives", "one is missing", [](Record&, Record& c) { c.collectives.pop_back(); }},
    {"outputs", "one is missing in both",
     [](Record& p, Record& c) {
       forget(p, Quantity::output);
       forget(c, Quantity::output);
     }},
    {"outputs", "the shape differs",
     [](Record&, Record& c) {
       observation(c, Quantity::output).shape = Shape{4, 1};
     }},
    {"absent-gradients", "a parameter gradient is absent in both runs",
     [](Record& p, Record& c) {
       observation(p, Quantity::parameter_gradient).present = false;
       observation(c, Quantity::parameter_gradient).present = false;
     }},
    {"dropout-masks", "the plain run recomputes",
     [](Record& p, Record& c) { p.draws.push_back(recomputed_draw(c)); }},
    {"dropout-masks", "both runs draw another number of elements than the layer has",
     [](Record& p, Record& c) {
       for (Record* r : {&p, &c}) {
         for (Draw& d : r->draws) d.elements += 4;
       }
     }},
    {"dropout-masks", "a layer draws that does not exist",
     [](Record&, Record& c) { c.draws[0].layer = 99; }},
    {"rng-after-forward", "both runs advance by more or less than the layers draw",
     [](Record& p, Record& c) {
       stream(p, Moment::after_forward, 0).offset += 4;
       stream(c, Moment::after_forward, 0).offset += 4;
     }},
    {"rng-after-backward", "the recomputation's state is not undone",
     [](Record&, Record& c) { stream(c, Moment::after_backward, 0).offset -= 4; }},
    {"rng-after-backward", "both runs draw in the backward",
     [](Record& p, Record& c) {
       stream(p, Moment::after_backward, 0).offset += 4;
       stream(c, Moment::after_backward, 0).offset += 4;
     }},
    {"rng-after-backward", "a reading is missing",
     [](Record&, Record& c) {
       erase_first(c.streams,
                   [](const StreamReading& s) { return s.moment == Moment::after_backward; });
     }},
    {"buffers-after-step", "a bit differs",
     [](Record&, Record& c) { flip_bit(c, Quantity::buffer); }},
    {"buffers-after-step", "one is missing",
     [](Record&, Record& c) { forget(c, Quantity::buffer); }},
    {"reevaluation", "a bit differs",
     [](Record&, Record& c) { flip_bit(c, Quantity::reevaluation); }},
    {"reevaluation", "it is missing",
     [](Record&, Record& c) { forget(c, Quantity::reevaluation); }},
    {"last-segment", "a layer of it is recomputed",
     [](Record&, Record& c) { c.executions[2].count = 2; }},
    {"last-segment", "it draws in a recomputation",
     [](Record&, Record& c) {
       Draw d = recomputed_draw(c);
       d.layer = 3;
       c.draws.push_back(d);
     }},
    {"last-segment", "nothing before it is recomputed",
     [](Record&, Record& c) {
       for (ExecutionCount& x : c.executions) x.count = 1;
     }},
    {"recomputation-order", "segments are recomputed in the order of the forward",
     [](Record&, Record& c) { std::swap(recomputed_layer(c, 0), recomputed_layer(c, 1)); }},
    {"recomputation-order", "a layer is recomputed twice",
     [](Record&, Record& c) {
       const LiveReading twice = recomputed_layer(c, 0);
       c.live.insert(c.live.begin() + (&recomputed_layer(c, 0) - c.live.data()), twice);
     }},
    {"recomputation-order", "a layer is not recomputed",
     [](Record&, Record& c) {
       c.live.erase(c.live.begin() + (&recomputed_layer(c, 1) - c.live.data()));
     }},
    {"recomputation-order", "a layer runs after the last step",
     [](Record&, Record& c) { c.live.push_back(recomputed_layer(c, 1)); }},
    {"recomputation-order", "a layer runs for another forward",
     [](Record&, Record& c) { recomputed_layer(c, 1).microbatch ^= 1; }},
    {"one-segment-alive", "a byte of the first recomputation is there when the second begins",
     [](Record&, Record& c) { ++recomputed_layer(c, 1).entered; }},
    {"live-bytes", "no event is recorded", [](Record&, Record& c) { c.live.clear(); }},
    {"peak-bytes", "an event is missing", [](Record&, Record& c) { c.live.pop_back(); }},
    {"peak-bytes", "an event too many",
     [](Record&, Record& c) { c.live.push_back(c.live.back()); }},
    {"plan-promise", "one byte more at the peak",
     [](Record&, Record& c) {
       ++std::max_element(c.live.begin(), c.live.end(), [](const auto& a, const auto& b) {
           return a.peak < b.peak;
         })->peak;
     }},
    {"plan-recomputations", "a layer is recomputed once more",
     [](Record&, Record& c) { ++c.executions.back().count; }},
    {"saved-at-most", "more than the plain run saves, and the inputs",
     [](Record&, Record& c) { c.bytes[0].saved += 1 << 20; }},
    {"saved-at-most", "a reading is missing",
     [](Record&, Record& c) { c.bytes.erase(c.bytes.begin()); }},
    {"saved-within-plain", "more than the plain run saves, and the inputs",
     [](Record&, Record& c) { c.bytes.front().saved += 1 << 20; }},
    {"saved-within-plain", "a reading is missing",
     [](Record&, Record& c) { c.bytes.erase(c.bytes.begin()); }},
    {"saved-within-plain", "nothing is recorded in either run",
     [](Record& p, Record& c) {
       p.bytes.clear();
       c.bytes.clear();
     }},
    {"held-at-most", "more than the plain run holds, and the inputs",
     [](Record&, Record& c) { held(c, Event::forward).live += 1 << 20; }},
    {"held-at-most", "a byte more after a backward",
     [](Record&, Record& c) { ++held(c, Event::backward, 1).live; }},
    {"held-at-most", "a byte is left after a step",
     [](Record&, Record& c) { ++held(c, Event::step).live; }},
    {"held-at-most", "a reading is missing", [](Record&, Record& c) { c.held.pop_back(); }},
    {"held-at-most", "nothing is recorded in either run",
     [](Record& p, Record& c) {
       p.held.clear();
       c.held.clear();
     }},
    {"held-in-backward", "nothing is recorded", [](Record&, Record& c) { c.held.clear(); }},
    {"held-in-backward", "the plain run does not show its backward",
     [](Record& p, Record&) {
       std::erase_if(p.held, [](const LiveReading& r) { return r.event == Event::node; });
     }},
    {"held-in-backward", "more is held when the last layer's backward begins",
     [](Record&, Record& c) { held(c, Event::node).live += 1 << 20; }},
    {"held-in-backward", "a byte of the first recomputation is there when the second begins",
     [](Record&, Record& c) {
       for (LiveReading& r : c.held) {
         if (r.layer == 0 && r.execution == 1) ++r.entered;
       }
     }},
    {"injected-failures", "the checkpointed run does not notice",
     [](Record&, Record& c) { c.trial->failed = false; }},
    {"injected-failures", "the checkpointed run leaves a byte",
     [](Record&, Record& c) { c.trial->left_bytes = 1; }},
    {"injected-failures", "the plain run leaves a byte",
     [](Record& p, Record&) { p.trial->left_bytes = 1; }},
    {"injected-failures", "a setting is left",
     [](Record&, Record& c) { c.trial->left_behind = "grad mode"; }},
    {"injected-failures", "there is no reading", [](Record&, Record& c) { c.trial.reset(); }},
};

/// Laws that know better than the plain run: found by changing all entries of a list in both
/// records alike, one field at a time, but for those that say where an entry belongs.
struct KnowingBetter {
  Synthetic& s;
  std::set<std::string_view> found = {};

  void judge() {
    for (const Violation& v : rematch::judge(s.evidence()).violations) found.insert(v.law);
  }

  template <class Entry>
  void operator()(std::string_view, std::vector<Entry>& plain, std::vector<Entry>& checkpointed) {
    static const std::set<std::string_view> kPlaces{
        "quantity",  "moment",    "event",  "step",  "microbatch", "layer",
        "execution", "parameter", "output", "index", "stream",     "unit"};
    const auto before = std::pair(plain, checkpointed);
    for (int field = 0;; ++field) {
      std::string_view name;
      for (std::vector<Entry>* list : {&plain, &checkpointed}) {
        for (Entry& e : *list) {
          // Draws are counted by four.
          Changer changer{field, 4};
          entries::fields(changer, e);
          name = changer.name;
        }
      }
      if (name.empty()) return;
      if (!kPlaces.contains(name)) judge();
      std::tie(plain, checkpointed) = before;
    }
  }
};

TEST_CASE("what both runs get wrong alike is seen, but by laws that take the plain run's word") {
  Synthetic s(synthetic_case());
  KnowingBetter better{s};
  entries::lists(better, s.plain, s.checkpointed);
  better("observations", s.plain.observations, s.checkpointed.observations);
  for (Record* r : {&s.plain, &s.checkpointed}) {
    for (std::byte& b : r->data) b ^= std::byte{1};
  }
  better.judge();
  const std::set<std::string_view> others{
      // What a layer computes only runs tell; derivatives and agrees-with-reference judge both.
      "outputs", "losses", "input-gradients", "parameter-gradients", "parameters-after-step",
      "buffers-after-step", "reevaluation",
      // What optimizers draw is no matter of checkpointing, nor what ranks send without it.
      "rng-after-step", "collectives",
      // They hold entries of one run against each other, or to bounds.
      "recomputed-values", "rng-after-backward", "recomputation-order", "one-segment-alive",
      "saved-at-most", "saved-within-plain", "held-at-most", "promises",
      // They read no lists: see kDeviations.
      "survives", "errors", "injected-failures"};
  for (const Law& law : laws()) {
    INFO(law.name);
    if (law.extra_runs.empty()) CHECK(better.found.contains(law.name) != others.contains(law.name));
  }
}

TEST_CASE("every law holds for two equal records") {
  for (const bool forwards_first : {false, true}) {
    Case c = synthetic_case();
    c.protocol.forwards_first = forwards_first;
    Synthetic s(c);
    s.checkpointed.promises = {{"early_stop", ""}};
    for (const Law& law : laws()) {
      INFO(law.name << (forwards_first ? ", forwards first" : ""));
      if (law.extra_runs.empty()) CHECK(s.verdict(law.name) == Verdict::kept);
    }
  }
}

TEST_CASE("every law breaks at the smallest deviation") {
  for (const bool forwards_first : {false, true}) {
    Case c = synthetic_case();
    c.protocol.forwards_first = forwards_first;
    for (const Deviation& d : kDeviations) {
      // Where forwards wait, the first backward leaves values of theirs.
      if (forwards_first && d.what.find("temporary") != std::string_view::npos) continue;
      if (forwards_first && d.what == "a byte is left in the plain run") continue;
      INFO(d.law << ": " << d.what << (forwards_first ? ", forwards first" : ""));
      Synthetic s(c);
      d.apply(s.plain, s.checkpointed);
      const std::optional<Violation> violation = s.judge(d.law);
      REQUIRE(violation);
      CHECK(violation->law == d.law);
      CHECK_FALSE(violation->place.empty());
      CHECK(violation->expected != violation->got);
      // It is about layers, and entries of profiles are asked of each.
      if (d.what == "nothing before it is recomputed") CHECK(violation->sites.size() == 2);
    }
  }
}

TEST_CASE("a promise is judged where a plan makes one, each of its numbers by itself") {
  Synthetic s(synthetic_case());
  const PromiseSpec exact = s.c.plan.promise;
  ++s.checkpointed.executions.back().count;
  CHECK(s.judge("plan-recomputations")->got == std::to_string(exact.recomputations + 1));
  s.c.plan.promise.recomputations = PromiseSpec::kNone;
  CHECK(s.verdict("plan-recomputations") == Verdict::not_applicable);
  CHECK(s.verdict("plan-promise") == Verdict::kept);
  s.c.plan.promise.peak_bytes = exact.peak_bytes - 1;
  CHECK(s.judge("plan-promise")->got == std::to_string(exact.peak_bytes) + " bytes");
  s.c.plan.promise.peak_bytes = PromiseSpec::kNone;
  CHECK(s.verdict("plan-promise") == Verdict::not_applicable);
  // Nothing is checkpointed: the plan that the promise was about is gone.
  s.c.plan = {};
  s.c.plan.promise = {0, 0};
  CHECK(s.verdict("plan-promise") == Verdict::not_applicable);
}

TEST_CASE(
    "what is live in a recomputation is judged, but for results where early stop leaves a layer") {
  Case c = synthetic_case();
  c.plan.sequential->segments = 2;
  Synthetic s(c);
  const LiveReading& first = recomputed_layer(s.checkpointed, 0);
  const auto at = static_cast<std::size_t>(&first - s.checkpointed.live.data());
  REQUIRE_FALSE(s.forecast.live[at].stops);
  REQUIRE(s.forecast.live[at + 1].stops);
  LiveReading* const layer = s.checkpointed.live.data() + at;
  SECTION("not after the layer before") {
    ++layer[0].live;
    CHECK(s.judge("live-bytes"));
  }
  SECTION("the layer may have returned: its results are live, into the next event") {
    layer[1].live = layer[1].peak;
    layer[2].peak = std::max(layer[1].peak, layer[2].peak);
    CHECK_FALSE(s.judge("live-bytes"));
    CHECK_FALSE(s.judge("peak-bytes"));
    ++layer[2].peak;
    CHECK(s.judge("peak-bytes"));
  }
  SECTION("nothing is let go that must be live") {
    --layer[1].live;
    CHECK(s.judge("live-bytes"));
  }
  SECTION("no more than ever was") {
    layer[1].live = layer[1].peak + 1;
    CHECK(s.judge("live-bytes"));
  }
  SECTION("what was not left is not in the next peak") {
    ++layer[2].peak;
    CHECK(s.judge("peak-bytes"));
  }
}

TEST_CASE("every law is in the table once, with a sentence, and is seen failing in these tests") {
  std::set<std::string_view> names;
  std::set<std::string_view> failing(std::begin(kReadEntryByEntry), std::end(kReadEntryByEntry));
  for (const Deviation& d : kDeviations) failing.insert(d.law);
  for (const Law& law : laws()) {
    // Two records lack what these read: derivatives_test.cpp, device_laws_test.cpp, and
    // hunt/gather_test.cpp.
    if (!law.extra_runs.empty() || law.name == "survives") continue;
    CHECK(names.insert(law.name).second);
    CHECK(law.statement.size() > 20);
    CHECK(law.statement.back() == '.');
    CHECK(law.harm.size() > 20);
    CHECK(law.harm.back() == '.');
    CHECK(find_law(law.name) == &law);
  }
  CHECK(names == failing);
  CHECK(find_law("no-such-law") == nullptr);
}

TEST_CASE("flags within a reentrant segment are judged of the engine alone") {
  Case c = testing::tanh_chain(3);
  c.protocol.input_requires_grad = true;
  c.plan.segments = {testing::segment(0, 2, Variant::reentrant)};
  const auto violated = [&](std::size_t flag, bool shows_executions) {
    testing::Synthetic s(c);
    if (!shows_executions) s.observed = s.observed.without({Observable::executions});
    s.checkpointed.grad_flags[flag].requires_grad ^= true;
    return s.judge("requires-grad-map").has_value();
  };
  CHECK(violated(0, true));
  CHECK_FALSE(violated(0, false));
  CHECK(violated(2, false));
}

}  // namespace
}  // namespace rematch
