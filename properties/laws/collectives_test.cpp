#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/forecast/testing/small_cases.h"
#include "properties/laws/testing/synthetic.h"
#include "properties/layers/custom_layer.h"

namespace rematch {
namespace {

using namespace testing;
using Kind = CollectiveKind;
using Phase = CollectivePhase;
using Change = std::function<void(Record&)>;

constexpr auto kForward = Phase::forward;
constexpr auto kAgain = Phase::recomputation;
constexpr auto kBackward = Phase::backward;

bool tells(const std::string& text, std::string_view words) {
  return text.find(words) != std::string::npos;
}

/// Tells what is wrong with the records of a case whose units are laid out by `made`, after a
/// change of the checkpointed one; "" if nothing is.
using Made = void (*)(Record& r, const Case& c, bool checkpointed);
std::string told(const Case& c, Made made, const Change& change = {}, const Change& plain = {}) {
  Synthetic s(c);
  made(s.plain, c, false);
  made(s.checkpointed, c, true);
  if (change) change(s.checkpointed);
  if (plain) plain(s.plain);
  const auto violation = s.judge("collectives");
  return violation ? violation->place + ": " + violation->expected + " / " + violation->got : "";
}

/// The first such collective of unit 1 or 2.
CollectiveReading& first(Record& r, Kind kind, Phase phase) {
  for (CollectiveReading& x : r.collectives) {
    if (x.kind == kind && x.phase == phase && x.unit > 0) return x;
  }
  throw std::logic_error("no such collective");
}
auto at(Record& r, Kind kind, Phase phase) {
  return r.collectives.begin() + (&first(r, kind, phase) - r.collectives.data());
}
Change without(Kind kind, Phase phase) {
  return [=](Record& r) { r.collectives.erase(at(r, kind, phase)); };
}
Change twice(Kind kind, Phase phase) {
  return [=](Record& r) {
    const CollectiveReading again = first(r, kind, phase);
    r.collectives.insert(at(r, kind, phase), again);
  };
}
Change with_bytes(Kind kind, Phase phase, std::int64_t bytes) {
  return [=](Record& r) { first(r, kind, phase).bytes = bytes; };
}
Change turned_into(Kind kind, Phase phase, Kind other, Phase into) {
  return [=](Record& r) {
    CollectiveReading& x = first(r, kind, phase);
    x.kind = other;
    x.phase = into;
  };
}
Change then(const Change& one, const Change& other) {
  return [=](Record& r) {
    one(r);
    other(r);
  };
}

Case two_units() {
  Case c = case_of({2, 3}, {dense(3), layer("tanh"), dense(2)});
  c.plan.segments = {segment(0, 2, Variant::non_reentrant)};
  c.protocol.microbatches = 2;
  c.protocol.input_requires_grad = true;
  return c;
}

/// The model is a unit that stays gathered, its first layer another, which a recomputation gathers.
void sharded(Record& r, const Case& /*c*/, bool checkpointed) {
  for (CollectiveReading& x : r.collectives) {
    const bool its = x.unit == 1 && x.kind == Kind::gather && x.phase == kBackward;
    if (checkpointed && its) x.phase = kAgain;
  }
}
/// The whole model in one unit that every device has: gradients are all that is sent.
void replicated(Record& r, const Case& c, bool /*checkpointed*/) {
  r.units = {{1, 0, static_cast<int>(c.layers.size()), true}};
  std::erase_if(r.collectives, [](const CollectiveReading& x) { return x.kind != Kind::reduce; });
  for (CollectiveReading& x : r.collectives) x.unit = 1;
}

TEST_CASE("a checkpoint sends what its plain run sends") {
  for (const Made made : {sharded, replicated}) {
    for (const bool forwards_first : {false, true}) {
      for (const int backwards : {1, 2}) {
        Case c = two_units();
        c.protocol.forwards_first = forwards_first;
        c.protocol.backwards = backwards;
        CHECK(told(c, made).empty());
        const Change last = [](Record& r) {
          std::erase_if(r.collectives, [](const CollectiveReading& x) {
            return x.kind == Kind::reduce && x.microbatch == 0;
          });
        };
        CHECK(told(c, made, last, last).empty());
        CHECK(tells(told(c, made, last), "reductions of gradients"));
        CHECK(tells(told(c, made, {}, last), "reductions of gradients"));
      }
    }
  }
  const Change half = with_bytes(Kind::reduce, kBackward, 16);
  CHECK(told(two_units(), sharded, half, half).empty());
}

TEST_CASE("one collective more, or one less, is a violation") {
  const Kind g = Kind::gather, r = Kind::reduce;
  const std::pair<std::string_view, Change> wrong[] = {
      {"recorded", [](Record& x) { x.units.clear(); }},
      {"the backward and its recomputations", twice(g, kAgain)},
      {"the backward and its recomputations", without(g, kAgain)},
      {"the backward and its recomputations", turned_into(r, kBackward, g, kBackward)},
      {"the backward and its recomputations", with_bytes(g, kAgain, 31)},
      {"of the forward", with_bytes(g, kForward, 31)},
      {"of the forward", twice(g, kForward)},
      {"of the forward", without(g, kForward)},
      {"of the forward",
       [](Record& x) { std::swap(x.collectives[0].unit, x.collectives[1].unit); }},
      {"reductions of gradients", with_bytes(r, kBackward, 0)},
      {"reductions of gradients", twice(r, kBackward)},
      {"reductions of gradients", without(r, kBackward)},
      {"reductions of gradients", turned_into(r, kBackward, r, kAgain)},
      {"after the backward",
       then(twice(r, kBackward),
            [](Record& x) { first(x, Kind::reduce, kBackward).kind = Kind::kept; })},
      {"outside of all units", [](Record& x) { x.collectives.back().unit = -1; }},
      {"outside of all units", turned_into(r, kBackward, Kind::other, kBackward)},
  };
  for (const auto& [words, change] : wrong) {
    for (const bool forwards_first : {false, true}) {
      Case c = two_units();
      c.protocol.forwards_first = forwards_first;
      INFO(words << (forwards_first ? ", forwards first" : ""));
      CHECK(tells(told(c, sharded, change), words));
    }
  }
}

TEST_CASE("what every device has is reduced in any number of parts, and never gathered") {
  const Case c = two_units();
  const Change parts =
      then(with_bytes(Kind::reduce, kBackward, 16), twice(Kind::reduce, kBackward));
  CHECK(tells(told(c, replicated, with_bytes(Kind::reduce, kBackward, 16)), "reductions"));
  CHECK(told(c, replicated, parts, with_bytes(Kind::reduce, kBackward, 32)).empty());
  CHECK(tells(told(c, sharded, parts, with_bytes(Kind::reduce, kBackward, 32)), "reductions"));
  CHECK(told(c, replicated, turned_into(Kind::reduce, kBackward, Kind::gather, kBackward)) != "");
}

TEST_CASE(
    "a backward may pass a unit in which nothing trains, where only a recomputation runs it") {
  Case c = two_units();
  for (LayerSpec& l : c.layers) l.frozen = l.kind == LayerKind::linear;
  CHECK(told(c, sharded).empty());
  CHECK(told(c, sharded, {}, without(Kind::gather, kBackward)).empty());
}

TEST_CASE("each of several losses may reach a unit, which is left sharded") {
  Case c = two_units();
  c.layers.push_back(layer("split"));
  c.layers.back().features = 1;
  c.protocol.auxiliary_losses = true;
  const Change kept = then(twice(Kind::reduce, kBackward),
                           [](Record& x) { first(x, Kind::reduce, kBackward).kind = Kind::kept; });
  for (const bool forwards_first : {false, true}) {
    c.protocol.forwards_first = forwards_first;
    CHECK(told(c, sharded).empty());
    CHECK(told(c, sharded, twice(Kind::gather, kAgain)).empty());
    CHECK(told(c, sharded, kept, kept).empty());
    CHECK(tells(told(c, sharded, kept), "after the backward: none / still gathered of"));
    CHECK(tells(told(c, sharded, twice(Kind::gather, kForward)), "of the forward"));
  }
}

/// A layer that is split by columns, in a segment, and one that is split by rows, without. Three
/// columns are padded to four.
void split(Record& r, const Case& c, bool checkpointed) {
  r.units = {{0, 0, 3, true}, {1, 0, 1, false, true}, {2, 2, 3, false, true}};
  r.collectives.clear();
  for (int microbatch = 0; microbatch < c.protocol.microbatches; ++microbatch) {
    const auto add = [&](Kind kind, Phase phase, int unit, std::int64_t bytes) {
      r.collectives.push_back({0, microbatch, kind, phase, unit, bytes});
    };
    add(Kind::gather, kForward, 1, 32);
    add(Kind::ran, kForward, 1, 0);
    add(Kind::reduce, kForward, 2, 16);
    add(Kind::ran, kForward, 2, 0);
    for (int call = 0; call < c.protocol.backwards; ++call) {
      add(Kind::gather, kBackward, 2, 32);
      if (checkpointed) {
        add(Kind::gather, kAgain, 1, 32);
        add(Kind::ran, kAgain, 1, 0);
      }
      if (c.protocol.input_requires_grad) add(Kind::reduce, kBackward, 1, 24);
    }
  }
}

TEST_CASE("a split layer sends in its backward what the plain one sends, and in its forward") {
  for (const int backwards : {1, 2}) {
    for (const bool waits : {false, true}) {
      for (const bool trains : {false, true}) {
        Case c = two_units();
        c.protocol.backwards = backwards;
        c.protocol.forwards_first = waits;
        c.protocol.input_requires_grad = trains;
        CHECK(told(c, split).empty());
      }
    }
  }
  const std::pair<std::string_view, Change> wrong[] = {
      {"of the forward", without(Kind::gather, kForward)},
      {"of the forward", twice(Kind::gather, kForward)},
      {"of the forward", with_bytes(Kind::gather, kForward, 16)},
      {"of the forward", turned_into(Kind::ran, kForward, Kind::stopped, kForward)},
      {"the backward of unit 2 (layers 2 to 2): gather of 32 bytes / none",
       without(Kind::gather, kBackward)},
      {"the backward of unit 1 (layers 0 to 0)", twice(Kind::reduce, kBackward)},
      {"reduction of 12 bytes", with_bytes(Kind::reduce, kBackward, 12)},
  };
  for (const auto& [words, change] : wrong) {
    INFO(words);
    CHECK(tells(told(two_units(), split, change), words));
  }
}

TEST_CASE("a recomputation of a split layer sends what its forward sent, until early stop") {
  const Change none = then(without(Kind::gather, kAgain), without(Kind::ran, kAgain));
  const Change again = [](Record& r) {
    const auto run = at(r, Kind::gather, kAgain);
    const std::vector<CollectiveReading> its(run, std::next(run, 2));
    r.collectives.insert(run, its.begin(), its.end());
  };
  const Change stopped =
      then(without(Kind::gather, kAgain), turned_into(Kind::ran, kAgain, Kind::stopped, kAgain));
  Case c = two_units();
  const std::string_view run = "a run in the recomputation: gather of 32 bytes / ";
  const std::string_view more = "more runs than backwards ask for";
  CHECK(tells(told(c, split, without(Kind::gather, kAgain)), run));
  CHECK(tells(told(c, split, twice(Kind::gather, kAgain)), run));
  CHECK(tells(told(c, split, with_bytes(Kind::gather, kAgain, 16)), run));
  CHECK(tells(told(c, split, without(Kind::ran, kAgain)), more));
  CHECK(tells(told(c, split, again), more));
  CHECK(told(c, split, none).empty());
  CHECK(told(c, split, stopped).empty());
  // Nothing recomputes what is in no segment, and each segment around it may.
  c.plan.segments = {segment(1, 2, Variant::non_reentrant)};
  CHECK(tells(told(c, split), more));
  c.plan.segments = {segment(0, 2, Variant::non_reentrant)};
  c.plan.segments[0].nested = {segment(0, 1, Variant::non_reentrant)};
  CHECK(told(c, split, again).empty());
}

TEST_CASE("a policy that keeps what a split layer makes keeps what was sent, too") {
  const Change skips = then(without(Kind::gather, kAgain), without(Kind::gather, kAgain));
  Case c = two_units();
  CHECK(told(c, split, skips) != "");
  c.plan.segments[0].choice.keep = {{"linear", -1}};
  CHECK(told(c, split, skips).empty());
  CHECK(tells(told(c, split), "a run in the recomputation: none / gather"));
  c.plan.segments[0].choice.keep = {};
  c.plan.segments[0].nested = {segment(0, 1, Variant::non_reentrant)};
  c.plan.segments[0].nested[0].choice.keep = {{"linear", -1}};
  CHECK(told(c, split).empty());
}

TEST_CASE("where the plain backward of a split layer sends nothing, a reentrant one may") {
  Case c = two_units();
  c.plan.segments = {segment(0, 2, Variant::reentrant)};
  c.protocol.input_requires_grad = false;
  const Change more = [](Record& r) {
    r.collectives.push_back({0, 0, Kind::reduce, kBackward, 1, 24});
  };
  CHECK(told(c, split, more).empty());
  CHECK(told(c, split, more, more).empty());
  CHECK(tells(told(c, split, {}, more), "the backward of unit 1"));
}

}  // namespace
}  // namespace rematch
