// One wrong entry of a record breaks the law that reads it, wherever it stands in its list.
#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "properties/case/describe.h"
#include "properties/generate/mix.h"
#include "properties/hunt/gather.h"
#include "properties/laws/law.h"
#include "properties/laws/testing/synthetic.h"
#include "properties/layers/draw_source.h"
#include "properties/record/entries.h"
#include "properties/subjects/engine_subject.h"
#include "properties/testing/changer.h"

namespace rematch {
namespace {

constexpr std::string_view kMissing = "missing";
constexpr std::string_view kTwice = "twice";

/// Where an entry stands, and what of it was changed.
struct Change {
  const Evidence& evidence;
  bool checkpointed = false;
  std::string_view list;
  std::string_view field;
  /// Entries of the list at the same place, this one included.
  int alike = 1;
};

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The law that must notice the change of an entry; "" where none can, with the reason.

std::string_view reader(const Draw& d, const Change& change) {
  // Where a policy kept the results of some runs, nothing says which of the others drew.
  const Forecast& f = change.evidence.forecast;
  const auto layer = static_cast<std::size_t>(d.layer);
  const bool kept = f.computations[layer] < f.executions[layer];
  return change.field == "execution" && d.execution > 0 && kept ? "" : "dropout-masks";
}

std::string_view reader(const ExecutionCount&, const Change&) { return "executions"; }

std::string_view reader(const GradFlag&, const Change& change) {
  // The plan may change what requires grad: nothing says that of the plain run. The first of equal
  // entries is read.
  return change.checkpointed && change.field != kTwice ? "requires-grad-map" : "";
}

std::string_view reader(const HookCount& h, const Change& change) {
  // The law holds the checkpointed run to the forecast. A hook that never fires may be missing.
  const bool is_read = change.field == "count" || (h.count > 0 && change.field != kTwice);
  return change.checkpointed && is_read ? "hooks" : "";
}

std::string_view reader(const StreamReading& s, const Change& change) {
  if (change.field == kTwice) return "";  // The first of equal entries is read.
  switch (s.moment) {
    case Moment::after_forward:
      return "rng-after-forward";
    case Moment::after_backward:
      return "rng-after-backward";
    case Moment::after_step:
      return "rng-after-step";
  }
  return "";
}

std::string_view reader(const ByteReading& b, const Change& change) {
  // The first of equal entries is read.
  if (change.field == kTwice) return "";
  if (b.moment == Moment::after_forward) {
    // Temporaries of a forward are live bytes, whose law reads them event by event.
    return is_one_of(change.field, {"temporaries", "retained"}) ? "" : "saved-bytes";
  }
  const ProtocolSpec& p = change.evidence.c.protocol;
  // Other graphs, or this one, hold temporaries of their own.
  const bool graphs_left = b.retained || (p.forwards_first && p.microbatches > 1);
  if (change.field == "temporaries" && graphs_left) return "";
  // Each of several backwards of one forward has a reading: one of them, moved, meets another.
  if (change.alike > 1 && is_one_of(change.field, {"step", "microbatch", "moment"})) return "";
  return "bytes-after-backward";
}

std::string_view reader(const LiveReading& l, const Change& change) {
  // Early stop may leave a layer before its results exist, or behind.
  if (change.field == "live" && l.event == Event::layer && l.execution > 0) return "";
  return change.field == "peak" ? "peak-bytes" : "live-bytes";
}

std::string_view reader(const LayerValue&, const Change& change) {
  // A value is compared with that of another run of its layer. How many there are is not known,
  // because early stop leaves a layer in its middle.
  const bool is_read = is_one_of(change.field, {"hash", "op"}) && change.alike > 1;
  return change.checkpointed && is_read ? "recomputed-values" : "";
}

std::string_view reader(const Observation& o, const Change& change) {
  // Only outputs say whether they require grad, and the plan may change it. The first of equal
  // entries is read.
  if (change.field == "requires_grad") {
    return change.checkpointed && o.quantity == Quantity::output ? "requires-grad-map" : "";
  }
  if (change.field == kTwice) return "";
  const bool is_gradient =
      o.quantity == Quantity::input_gradient || o.quantity == Quantity::parameter_gradient;
  if (is_gradient && change.field == "present") return "absent-gradients";
  if (is_gradient && !o.present) {
    // Only the place of an absent gradient is read.
    if (change.field == "dtype") return "";
    if (change.field != "microbatch") return "absent-gradients";
  }
  switch (o.quantity) {
    case Quantity::output:
      return "outputs";
    case Quantity::loss:
      return "losses";
    case Quantity::input_gradient:
      return "input-gradients";
    case Quantity::parameter_gradient:
      return "parameter-gradients";
    case Quantity::parameter:
      return "parameters-after-step";
    case Quantity::buffer:
      return "buffers-after-step";
    case Quantity::reevaluation:
      return "reevaluation";
  }
  return "";
}

// Observed by other subjects, or on request (changed in the tests of the laws that read them).
std::string_view reader(const PromiseReading&, const Change&) { return ""; }
std::string_view reader(const UnitReading&, const Change&) { return ""; }
std::string_view reader(const CollectiveReading&, const Change&) { return ""; }
std::string_view reader(const TimelinePoint&, const Change&) { return ""; }
std::string_view reader(const Agreement&, const Change&) { return ""; }

// The law that must notice one more entry, which differs in one field; "" where none can: of
// entries at one place the first is read, and nothing says how many values and gradients there are.

template <class Entry>
std::string_view reader_of_more(const Entry&, const Entry&, const std::vector<Entry>&,
                                const Change&) {
  return "";
}
std::string_view reader_of_more(const Draw&, const Draw&, const std::vector<Draw>&, const Change&) {
  return "dropout-masks";
}
std::string_view reader_of_more(const ExecutionCount&, const ExecutionCount&,
                                const std::vector<ExecutionCount>&, const Change&) {
  return "executions";
}
std::string_view reader_of_more(const LiveReading&, const LiveReading&,
                                const std::vector<LiveReading>&, const Change&) {
  return "live-bytes";
}
std::string_view reader_of_more(const StreamReading& before, const StreamReading& more,
                                const std::vector<StreamReading>& list, const Change& change) {
  const bool is_new = std::none_of(list.begin(), list.end(), [&](const StreamReading& r) {
    return &r != &more && r.stream == more.stream;
  });
  return change.field == "stream" && is_new ? reader(before, change) : "";
}

bool are_alike(const LayerValue& a, const LayerValue& b) {
  return a.step == b.step && a.microbatch == b.microbatch && a.layer == b.layer &&
         a.saved == b.saved && a.index == b.index;
}
bool are_alike(const ByteReading& a, const ByteReading& b) {
  return a.moment == b.moment && a.step == b.step && a.microbatch == b.microbatch;
}
template <class Entry>
int count_alike(const std::vector<Entry>& list, const Entry& entry) {
  if constexpr (requires { are_alike(entry, entry); }) {
    return static_cast<int>(std::count_if(list.begin(), list.end(),
                                          [&](const Entry& e) { return are_alike(e, entry); }));
  }
  return 1;
}

/// Entries of one list that laws read apart.
template <class Entry>
int kind_of(const Entry& entry) {
  if constexpr (requires { entry.quantity; }) return static_cast<int>(entry.quantity);
  if constexpr (requires { entry.moment; }) return static_cast<int>(entry.moment);
  if constexpr (requires { entry.event; }) return static_cast<int>(entry.event);
  return 0;
}

/// Changes the records of one case, one thing at a time.
class Changes {
 public:
  Changes(const Evidence& evidence, DrawSource draw)
      : evidence_(evidence), right_(judge(evidence)), draw_(draw) {}

  void try_all(bool checkpointed, Record& record) {
    checkpointed_ = checkpointed;
    entries::lists(*this, record);
    (*this)("observations", record.observations);
    try_data(record);
  }
  /// Changes by the law that must notice them.
  const std::map<std::string_view, int>& tried() const { return tried_; }

  template <class Entry>
  void operator()(std::string_view name, std::vector<Entry>& list) {
    for (const std::size_t at : places_in(list)) {
      const Entry before = list[at];
      Change change{evidence_, checkpointed_, name, "", count_alike(list, before)};
      for (int field = 0;; ++field) {
        testing::Changer changer{field};
        entries::fields(changer, list[at]);
        change.field = changer.name;
        if (changer.name.empty()) break;
        expect(reader(before, change), change, at);
        list[at] = before;
      }
      for (int field = 0;; ++field) {
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), before);
        testing::Changer changer{field};
        entries::fields(changer, list[at + 1]);
        change.field = changer.name;
        const bool is_over = changer.name.empty();
        if (!is_over) expect(reader_of_more(before, list[at + 1], list, change), change, at);
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
        list[at] = before;
        if (is_over) break;
      }
      change.field = kMissing;
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
      expect(reader(before, change), change, at);
      change.field = kTwice;
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), 2, before);
      expect(reader(before, change), change, at);
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

 private:
  void try_data(Record& record) {
    for (const std::size_t at : places_in(record.observations)) {
      const Observation& o = record.observations[at];
      const std::size_t item = size_of(o.dtype);
      if (o.bytes == 0 || !o.present) continue;
      for (const std::size_t element : places(o.bytes / item)) {
        std::byte* const place = record.data.data() + o.offset + element * item;
        std::byte before[8];
        std::memcpy(before, place, item);
        const bool is_float = o.dtype == DType::float32 || o.dtype == DType::float64;
        const auto expect_it = [&](std::string_view what) {
          const Change change{evidence_, checkpointed_, "data", what};
          expect(reader(o, change), change, at);
          std::memcpy(place, before, item);
        };
        // All NaNs are one.
        if (std::isnan(element_of(o.dtype, place))) continue;
        place[0] ^= std::byte{1};
        expect_it("last bit");
        place[item - 1] ^= std::byte{0x80};
        expect_it("sign");
        if (!is_float) continue;
        const double nan = std::numeric_limits<double>::quiet_NaN();
        const float short_nan = std::numeric_limits<float>::quiet_NaN();
        std::memcpy(place, item == 8 ? static_cast<const void*>(&nan) : &short_nan, item);
        expect_it("no number");
      }
    }
  }

  /// The same of each kind.
  template <class Entry>
  std::set<std::size_t> places_in(const std::vector<Entry>& list) {
    std::map<int, std::vector<std::size_t>> kinds;
    for (std::size_t i = 0; i < list.size(); ++i) kinds[kind_of(list[i])].push_back(i);
    std::set<std::size_t> all;
    for (const auto& [kind, indices] : kinds) {
      for (const std::size_t at : places(indices.size())) all.insert(indices[at]);
    }
    return all;
  }

  /// First, last and one at random.
  std::set<std::size_t> places(std::size_t size) {
    if (size == 0) return {};
    return {0, size - 1, draw_.below(static_cast<std::uint32_t>(size))};
  }

  void expect(std::string_view law, const Change& change, std::size_t at) {
    if (law.empty() || right_.by_law[index_of(*find_law(law))] != Verdict::kept) return;
    ++tried_[law];
    const Verdicts verdicts = judge(evidence_);
    const bool notices = std::any_of(
        verdicts.violations.begin(), verdicts.violations.end(), [&](const Violation& v) {
          return v.law == law && !v.place.empty() && v.expected != v.got;
        });
    if (notices) return;
    FAIL_CHECK("expected a violation of "
               << law << ", got none: " << (checkpointed_ ? "checkpointed" : "plain") << " run, "
               << change.list << " " << at << ", " << change.field << "\n"
               << describe(evidence_.c));
  }

  const Evidence& evidence_;
  Verdicts right_;
  DrawSource draw_;
  bool checkpointed_ = false;
  std::map<std::string_view, int> tried_;
};

/// Plans whose two runs differ by what they say (random states that are not preserved, casts) leave
/// laws nothing to compare.
bool is_exact(const Evidence& e) {
  const Forecast& f = e.forecast;
  return !e.failed() && f.values_comparable && f.exact_inputs &&
         f.exact_until_step >= e.c.protocol.steps;
}

void change_records_of(std::uint64_t cases) {
  EngineSubject engine;
  Workspace seen;
  std::map<std::string_view, int> tried;
  for (std::uint64_t i = 0; i < cases; ++i) {
    INFO("seed " << Catch::getSeed() << ", case " << i);
    const Case c = generate_case(Mix::wide, Catch::getSeed(), i);
    const Evidence evidence = gather(c, engine, seen);
    if (!is_exact(evidence)) continue;
    Changes changes(evidence, DrawSource(Catch::getSeed(), i));
    changes.try_all(false, seen.plain);
    changes.try_all(true, seen.checkpointed);
    for (const auto& [law, count] : changes.tried()) tried[law] += count;
  }
  for (const std::string_view law : testing::kReadEntryByEntry) {
    INFO(law);
    CHECK(tried[law] > 0);
  }
}

}  // namespace

TEST_CASE("one wrong entry anywhere in a record breaks the law that reads it") {
  change_records_of(60);
}

TEST_CASE("one wrong entry breaks its law in many more records", "[.changes-long]") {
  change_records_of(2000);
}

TEST_CASE("too many bytes or no reading at any moment break the law of what is held then") {
  testing::Synthetic s(testing::synthetic_case());
  std::vector<LiveReading>& held = s.checkpointed.held;
  REQUIRE(held.size() > 20);
  for (std::size_t i = 0; i < held.size(); ++i) {
    const LiveReading before = held[i];
    const bool of_layer = before.event == Event::layer;
    // Layers of a forward are held to nothing: the end of the forward is.
    if (of_layer && before.execution == 0) continue;
    const bool in_backward = of_layer || before.event == Event::node;
    const std::string_view law = in_backward ? "held-in-backward" : "held-at-most";
    INFO(law << ", reading " << i);
    // More than all layers together, because what a plan may hold is a bound.
    (of_layer ? held[i].entered : held[i].live) += 1 << 20;
    CHECK(s.verdict(law) == Verdict::violated);
    held[i] = before;
    ++held[i].step;
    CHECK(s.verdict(law) == Verdict::violated);
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
    CHECK(s.verdict(law) == Verdict::violated);
    held.insert(held.begin() + static_cast<std::ptrdiff_t>(i), before);
    CHECK(s.verdict(law) == Verdict::kept);
  }
}

}  // namespace rematch
