#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
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
using Change = std::function<void(Synthetic&)>;

/// Tells what is wrong with the records of a case after a change; "" if nothing is.
std::string told(const Case& c, const Change& change) {
  Synthetic s(c);
  change(s);
  const auto violation = s.judge("collectives");
  return violation ? violation->place + ": " + violation->expected + " / " + violation->got : "";
}

bool tells(const std::string& text, std::string_view words) {
  return text.find(words) != std::string::npos;
}

/// A change of each record by itself.
Change both(void (*change)(Record&)) {
  return [change](Synthetic& s) {
    change(s.plain);
    change(s.checkpointed);
  };
}

Change then(const Change& first, const Change& second) {
  return [first, second](Synthetic& s) {
    first(s);
    second(s);
  };
}

Change checkpointed(void (*change)(Record&)) {
  return [change](Synthetic& s) { change(s.checkpointed); };
}

/// The first one of unit 1.
CollectiveReading& first(Record& r, Kind kind, Phase phase) {
  return *std::find_if(r.collectives.begin(), r.collectives.end(), [&](const CollectiveReading& x) {
    return x.kind == kind && x.phase == phase && x.unit == 1;
  });
}
CollectiveReading& reduction(Record& r) { return first(r, Kind::reduce, Phase::backward); }
CollectiveReading& gather(Record& r) { return first(r, Kind::gather, Phase::backward); }

/// The whole model in one unit that every device has: gradients are all that is sent.
void replicate(Record& r) {
  r.units = {{0, 0, r.units[0].end, true, true}};
  for (ShardReading& s : r.shards) s.unit = 0;
  std::erase_if(r.collectives, [](const CollectiveReading& x) { return x.kind != Kind::reduce; });
  for (CollectiveReading& x : r.collectives) x.unit = 0;
}

/// Reductions of the last microbatch alone.
void accumulate(Record& r) {
  for (UnitReading& u : r.units) u.accumulates = true;
  std::erase_if(r.collectives, [](const CollectiveReading& x) {
    return x.kind == Kind::reduce && x.microbatch == 0;
  });
}

/// Those of the first backward of all, too.
void learn(Record& r) {
  for (UnitReading& u : r.units) u.learns = true;
  std::erase_if(r.collectives, [](const CollectiveReading& x) {
    return x.kind == Kind::reduce && x.microbatch == 0 && x.step > 0;
  });
}

/// A recomputation gathers unit 1.
void recompute(Record& r) {
  r.units[1].recomputed = true;
  for (CollectiveReading& x : r.collectives) {
    if (x.kind == Kind::gather && x.phase == Phase::backward) x.phase = Phase::recomputation;
  }
}

Case case_of_two_units() {
  Case c = case_of({2, 3}, {dense(3), layer("tanh"), dense(2)});
  c.plan.segments = {segment(0, 2, Variant::non_reentrant)};
  c.protocol.steps = 2;
  c.protocol.microbatches = 2;
  c.protocol.input_requires_grad = true;
  return c;
}

Case with_a_module() {
  Case c = case_of_two_units();
  c.layers[0] = layer("custom");
  c.layers[0].layer = declared("embedding: N C -> N C; parameters");
  return c;
}

Case with(void (*change)(ProtocolSpec&)) {
  Case c = case_of_two_units();
  change(c.protocol);
  return c;
}

const Change kNone = [](Synthetic&) {};

TEST_CASE("collectives that a wrapping implies are no violation") {
  const auto forwards_first = with([](ProtocolSpec& p) { p.forwards_first = true; });
  const auto two_backwards = with([](ProtocolSpec& p) { p.backwards = 2; });
  for (const Case& c : {case_of_two_units(), forwards_first, two_backwards, with_a_module()}) {
    CHECK(told(c, kNone).empty());
    CHECK(told(c, both(replicate)).empty());
  }
  const Case c = case_of_two_units();
  CHECK(told(c, both(accumulate)).empty());
  CHECK(told(c, both(learn)) != "");
  CHECK(told(c, then(both(learn), both([](Record& r) {
                       for (UnitReading& u : r.units) u.accumulates = true;
                     })))
            .empty());
  CHECK(told(c, checkpointed(recompute)).empty());
}

TEST_CASE("one collective more, or one less, is a violation") {
  const std::pair<std::string_view, void (*)(Record&)> wrong[] = {
      {"parameters of units", [](Record& r) { r.shards.clear(); }},
      {"gathers in the backward", [](Record& r) { r.collectives.push_back(gather(r)); }},
      {"gathers in the recomputation", [](Record& r) { gather(r).phase = Phase::recomputation; }},
      {"gathers in the backward", [](Record& r) { gather(r).kind = Kind::reduce; }},
      {"gather of unit", [](Record& r) { --r.collectives[0].bytes; }},
      {"gathers in the forward", [](Record& r) { r.collectives.erase(r.collectives.begin()); }},
      {"reductions of gradients", [](Record& r) { reduction(r).bytes = 0; }},
      {"reductions of gradients", [](Record& r) { r.collectives.push_back(reduction(r)); }},
      {"reductions outside", [](Record& r) { reduction(r).phase = Phase::recomputation; }},
      {"reductions of gradients", [](Record& r) { r.units[1].accumulates = true; }},
      {"after the backward",
       [](Record& r) {
         r.collectives.push_back(gather(r));
         r.collectives.back().kind = Kind::kept;
       }},
      {"outside of all units", [](Record& r) { gather(r).unit = -1; }},
      {"outside of all units", [](Record& r) { gather(r).kind = Kind::other; }},
  };
  for (const auto& [words, change] : wrong) {
    for (const bool forwards_first : {false, true}) {
      Case c = case_of_two_units();
      c.protocol.forwards_first = forwards_first;
      INFO(words << (forwards_first ? ", forwards first" : ""));
      CHECK(tells(told(c, checkpointed(change)), "checkpointed run, "));
      CHECK(tells(told(c, checkpointed(change)), words));
      const std::string plain = told(c, [&](Synthetic& s) { change(s.plain); });
      CHECK(tells(plain, "plain run, "));
    }
  }
}

TEST_CASE("each of several losses may reach a unit, and one does") {
  Case c = case_of_two_units();
  c.layers.push_back(layer("split"));
  c.layers.back().features = 1;
  c.protocol.auxiliary_losses = true;
  c.protocol.steps = c.protocol.microbatches = 1;
  const auto again = [](Record& r) {
    r.collectives.push_back(gather(r));
    r.collectives.push_back(reduction(r));
  };
  const auto none = [](Record& r) {
    std::erase_if(r.collectives, [](const CollectiveReading& x) {
      return x.unit == 1 && x.kind == Kind::reduce && x.phase == Phase::backward;
    });
  };
  CHECK(told(c, kNone).empty());
  CHECK(told(c, both(again)).empty());
  CHECK(tells(told(c, checkpointed(none)), "reductions of gradients"));
  CHECK(tells(told(c, then(both(again), both(again))), "gathers in the backward"));
  // Which loss reaches what is as in the plain run, unless a reentrant segment hands on zeros.
  CHECK(tells(told(c, checkpointed(again)), "as in the plain run"));
  c.plan.segments[0].choice.variant = Variant::reentrant;
  CHECK(told(c, checkpointed(again)).empty());
  c.protocol.forwards_first = true;
  CHECK(told(c, both(none)).empty());
}

TEST_CASE("what every device has is reduced whole, in any number of parts, and never gathered") {
  const Case c = case_of_two_units();
  const auto changed = [&](void (*change)(Record&)) {
    return told(c, then(both(replicate), checkpointed(change)));
  };
  CHECK(changed([](Record& r) {
          r.collectives.push_back(r.collectives[0]);
          r.collectives.back().bytes /= 2;
          r.collectives[0].bytes /= 2;
        }).empty());
  CHECK(changed([](Record& r) { r.collectives[0].kind = Kind::gather; }) != "");
  CHECK(changed([](Record& r) { r.collectives.pop_back(); }) != "");
  CHECK(changed([](Record& r) { r.collectives.push_back(r.collectives[0]); }) != "");
}

TEST_CASE("where no parameter gets a gradient, nothing is reduced") {
  Case c = case_of_two_units();
  for (LayerSpec& l : c.layers) l.frozen = l.kind == LayerKind::linear;
  CHECK(told(c, both(replicate)).empty());
  CHECK(told(c, then(both(replicate), checkpointed([](Record& r) {
                       r.collectives.push_back({0, 0, Kind::reduce, Phase::backward, 0, 64});
                     }))) != "");
  // A static graph is learned even so.
  const auto learning = [](Record& r) {
    r.units[0].learns = true;
    r.collectives.push_back({0, 0, Kind::reduce, Phase::backward, 0, 64});
  };
  CHECK(told(c, then(both(replicate), both(learning))).empty());
  CHECK(tells(told(c, then(both(replicate), both([](Record& r) { r.units[0].learns = true; }))),
              "step 0, microbatch 0"));
  // The backward may pass such a unit, and gather it, or not.
  CHECK(told(c, kNone).empty());
  CHECK(told(c, checkpointed([](Record& r) {
               r.collectives.erase(r.collectives.begin() + (&gather(r) - r.collectives.data()));
             }))
            .empty());
  CHECK(tells(told(c, checkpointed([](Record& r) { gather(r).step = 9; })),
              "collectives outside of all forwards"));
  CHECK(tells(told(c, checkpointed([](Record& r) { r.collectives.push_back(gather(r)); })),
              "gathers in the backward"));
}

TEST_CASE("gradients are accumulated up to the last backward, but that which learns the graph") {
  const Case c = case_of_two_units();
  const Change learns = then(both(learn), both([](Record& r) {
                               for (UnitReading& u : r.units) u.accumulates = true;
                             }));
  const auto without_first = [](Record& r) {
    r.collectives.erase(&reduction(r) - &r.collectives[0] + r.collectives.begin());
  };
  CHECK(tells(told(c, then(learns, checkpointed(without_first))), "step 0, microbatch 0"));
  CHECK(tells(told(c, then(both(accumulate), checkpointed(without_first))), "microbatch 1"));
  // Where all forwards run first, the backward of the first one is the last.
  const Case waits = with([](ProtocolSpec& p) { p.forwards_first = true; });
  CHECK(told(waits, both(accumulate)) != "");
  CHECK(told(waits, both([](Record& r) {
               for (UnitReading& u : r.units) u.accumulates = true;
               std::erase_if(r.collectives, [](const CollectiveReading& x) {
                 return x.kind == Kind::reduce && x.microbatch == 1;
               });
             }))
            .empty());
}

TEST_CASE("a recomputation gathers a unit that it runs, once for both") {
  const Case c = case_of_two_units();
  const auto twice = [](Record& r) {
    r.collectives.push_back(first(r, Kind::gather, Phase::recomputation));
  };
  CHECK(tells(told(c, then(checkpointed(recompute), checkpointed(twice))), "in the recomputation"));
  const auto and_once_more = [](Record& r) {
    r.collectives.push_back(first(r, Kind::gather, Phase::recomputation));
    r.collectives.back().phase = Phase::backward;
  };
  CHECK(tells(told(c, then(checkpointed(recompute), checkpointed(and_once_more))),
              "backward and its recomputations"));
}

TEST_CASE("a backward may prefetch one unit for the next backward where forwards wait") {
  const Case waits = with([](ProtocolSpec& p) { p.forwards_first = true; });
  const auto ahead = [](Record& r) {
    for (CollectiveReading& x : r.collectives) {
      const bool next = x.unit == 1 && x.kind == Kind::gather && x.phase == Phase::backward;
      if (next && x.microbatch == 0) x.microbatch = 1;
    }
  };
  CHECK(told(waits, both(ahead)).empty());
  CHECK(told(case_of_two_units(), both(ahead)) != "");
  const auto and_again = [](Record& r) {
    r.collectives.push_back(gather(r));
    r.collectives.back().microbatch = 0;
  };
  CHECK(tells(told(waits, then(both(ahead), both(and_again))), "gathers in the backward"));
}

/// Devices that split the layers of unit 1 add up a gradient of it before that is reduced.
void add_up(Record& r) {
  std::find_if(r.shards.begin(), r.shards.end(), [](const ShardReading& s) {
    return s.unit == 1;
  })->added = 12;
  std::vector<CollectiveReading> sent;
  for (CollectiveReading x : r.collectives) {
    if (x.kind == Kind::reduce && x.unit == 1) {
      sent.push_back(x);
      sent.back().bytes = 12;
    }
    sent.push_back(x);
  }
  r.collectives = sent;
}

TEST_CASE("a gradient that other devices add up is added up once ahead of each reduction") {
  const Case c = case_of_two_units();
  CHECK(told(c, both(add_up)).empty());
  CHECK(told(c, then(both(add_up), both(accumulate))).empty());
  const auto not_added = [](Record& r) {
    r.collectives.erase(&reduction(r) - &r.collectives[0] + r.collectives.begin());
  };
  const auto half = [](Record& r) { reduction(r).bytes /= 2; };
  const auto twice = [](Record& r) { r.collectives.push_back(reduction(r)); };
  for (const auto change : {+not_added, +half, +twice}) {
    CHECK(tells(told(c, then(both(add_up), checkpointed(change))),
                "reductions of gradients of unit 1"));
  }
  CHECK(tells(told(c, checkpointed(twice)), "reductions of gradients of unit 1"));
}

TEST_CASE("what is reduced of a module of the subject's own is what the plain run reduces of it") {
  const Case c = with_a_module();
  const auto half = [](Record& r) { reduction(r).bytes /= 2; };
  CHECK(told(c, both(half)).empty());
  CHECK(tells(told(c, checkpointed(half)), "as in the plain run"));
  CHECK(tells(told(c, both([](Record& r) { reduction(r).bytes *= 2; })), "plain run, "));
  // A replicated one is reduced whole, whatever of it got a gradient.
  const Change half_of_all =
      then(both(replicate), both([](Record& r) { r.collectives[0].bytes /= 2; }));
  CHECK(tells(told(c, half_of_all), "plain run, "));
}

/// Units of the layers 0 and 2 within one that is the whole model, with the gathers of one forward
/// and its backward in that order.
/// `shared`: half of the parameters belong to the whole.
Change gathers(std::vector<std::pair<Phase, int>> order, bool shared = false) {
  return [order, shared](Synthetic& s) {
    for (Record* r : {&s.plain, &s.checkpointed}) {
      r->units = {{0, 0, 3}, {1, 0, 1}, {2, 2, 3}};
      r->units[1].recomputed = r->units[2].recomputed = true;
      for (ShardReading& p : r->shards) {
        p.unit = shared && p.parameter % 2 == 1 ? 0 : p.parameter < 2 ? 1 : 2;
      }
      const std::int64_t bytes = shared ? 16 : 32;
      r->collectives.clear();
      for (const auto& [phase, unit] : order) {
        r->collectives.push_back({0, 0, Kind::gather, phase, unit, unit == 0 ? 32 : bytes});
      }
      for (const int unit : {0, 1, 2}) {
        if (unit == 0 && !shared) continue;
        const std::int64_t sent = unit == 0 ? 32 : bytes;
        r->collectives.push_back({0, 0, Kind::reduce, Phase::backward, unit, sent});
      }
    }
  };
}

TEST_CASE("units are gathered as they run, by a backward in reverse but for its recomputations") {
  Case c = case_of_two_units();
  c.protocol.steps = c.protocol.microbatches = 1;
  const auto f = Phase::forward;
  const auto b = Phase::backward;
  const auto r = Phase::recomputation;
  CHECK(told(c, gathers({{f, 1}, {f, 2}, {b, 2}, {b, 1}})).empty());
  CHECK(tells(told(c, gathers({{f, 2}, {f, 1}, {b, 2}, {b, 1}})), "order of gathers"));
  // A unit around one that ends it waits for that, and for what that prefetches.
  CHECK(told(c, gathers({{f, 0}, {f, 1}, {f, 2}, {b, 0}, {b, 2}, {b, 1}}, true)).empty());
  CHECK(told(c, gathers({{f, 0}, {f, 1}, {f, 2}, {b, 2}, {b, 1}, {b, 0}}, true)).empty());
  CHECK(tells(told(c, gathers({{f, 0}, {f, 1}, {f, 2}, {b, 1}, {b, 0}, {b, 2}}, true)), "order"));
  // Layers behind that one may hand on what it made.
  Case handed_on = c;
  handed_on.layers.push_back(layer("duplicate"));
  const Change longer = both([](Record& record) { record.units[0].end = 4; });
  const Change whole_last = gathers({{f, 0}, {f, 1}, {f, 2}, {b, 2}, {b, 1}, {b, 0}}, true);
  CHECK(told(handed_on, then(whole_last, longer)).empty());
  handed_on.layers.back() = layer("gaussian_noise");
  handed_on.layers.back().p = 0;
  CHECK(told(handed_on, then(whole_last, longer)).empty());
  handed_on.layers.back().p = 0.5;
  CHECK(tells(told(handed_on, then(whole_last, longer)), "order of gathers"));
  handed_on.layers.back() = layer("tanh");
  CHECK(tells(told(handed_on, then(whole_last, longer)), "order of gathers"));
  // That one may stay gathered.
  const Change stays = both([](Record& record) { record.units[2].stays = true; });
  CHECK(told(c, then(gathers({{f, 0}, {f, 1}, {f, 2}, {b, 1}, {b, 0}}, true), stays)).empty());
  // Or have nothing to gather, and prefetch even so.
  const Change empty = both([](Record& record) {
    for (ShardReading& shard : record.shards) {
      if (shard.unit == 2) shard.bytes = 0;
    }
    std::erase_if(record.collectives, [](const CollectiveReading& x) { return x.unit == 2; });
  });
  CHECK(told(c, then(gathers({{f, 0}, {f, 1}, {b, 1}, {b, 0}}, true), empty)).empty());
  CHECK(tells(told(c, gathers({{f, 1}, {f, 2}, {b, 1}, {b, 2}})), "order of gathers"));
  CHECK(tells(told(c, gathers({{f, 1}, {f, 2}, {r, 1}, {r, 2}})), "order of gathers"));
  c.plan.segments = {segment(0, 3, Variant::non_reentrant)};
  CHECK(told(c, gathers({{f, 1}, {f, 2}, {r, 1}, {r, 2}})).empty());
  CHECK(told(c, gathers({{f, 1}, {f, 2}, {b, 2}, {r, 1}})).empty());
  CHECK(tells(told(c, gathers({{f, 1}, {f, 2}, {r, 2}, {r, 1}})), "order of gathers"));
  CHECK(tells(told(c, gathers({{f, 1}, {f, 2}, {b, 1}, {b, 2}})), "order of gathers"));
}

}  // namespace
}  // namespace rematch
