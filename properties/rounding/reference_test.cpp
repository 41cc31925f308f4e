#include "properties/rounding/reference.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "properties/case/json.h"
#include "properties/forecast/testing/small_cases.h"
#include "properties/generate/mix.h"
#include "properties/hunt/gather.h"
#include "properties/layers/layer.h"
#include "properties/rounding/analysis.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

using namespace testing;

constexpr std::uint64_t kSeed = 23;
constexpr std::uint64_t kCases = 400;

void scale(Record& r, const Observation& o, float factor) {
  for (std::size_t at = o.offset; at < o.offset + o.bytes; at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, r.data.data() + at, sizeof(value));
    value *= factor;
    std::memcpy(r.data.data() + at, &value, sizeof(value));
  }
}

void scale(Record& r, Quantity quantity, float factor) {
  for (const Observation& o : r.observations) {
    if (o.quantity == quantity && o.present && o.dtype == DType::float32) scale(r, o, factor);
  }
}

/// The same observations in float32.
Record narrowed(const Record& wide) {
  Record record;
  for (Observation o : wide.observations) {
    const std::vector<double> elements = elements_of(wide, o);
    if (o.dtype == DType::float64) o.dtype = DType::float32;
    o.offset = record.data.size();
    o.bytes = elements.size() * size_of(o.dtype);
    for (const double element : elements) {
      const auto narrow = static_cast<float>(element);
      const auto bytes = std::as_bytes(std::span(&narrow, 1));
      record.data.insert(record.data.end(), bytes.begin(), bytes.end());
    }
    record.observations.push_back(o);
  }
  return record;
}

/// The engine as if it were somebody else's whose checkpointed run rounds differently: it computes
/// in float64, and rounds what it returns to the case's dtype.
class Compiled final : public Subject {
 public:
  using Spoil = std::function<void(bool checkpointed, Record& record)>;
  explicit Compiled(Spoil spoil) : spoil_(std::move(spoil)) {}
  const Declaration& declares() const override { return declaration_; }
  void run(const Case& c, const Geometry& geometry, const RunRequest& request,
           Record& record) override {
    const bool low = c.protocol.autocast != AutocastSpan::off;
    if (request.checkpointed && c.dtype == DType::float32 && !low) {
      Case wide = c;
      wide.dtype = DType::float64;
      RunRequest in_float64 = request;
      in_float64.numbers_of = &c;
      Record wider;
      engine_.run(wide, geometry, in_float64, wider);
      record = narrowed(wider);
    } else {
      engine_.run(c, geometry, request, record);
    }
    spoil_(request.checkpointed, record);
  }

 private:
  Declaration declaration_{
      .name = "compiled",
      .observes = {Observable::outputs, Observable::losses, Observable::input_gradients,
                   Observable::parameter_gradients, Observable::absent_gradients,
                   Observable::parameters, Observable::buffers, Observable::reevaluation},
      .foreign = true,
      .rounds_differently = true};
  Spoil spoil_;
  EngineSubject engine_;
};

Verdict of(const Verdicts& verdicts, std::string_view law) {
  return verdicts.by_law[index_of(*find_law(law))];
}

/// Two layers, and values that no rounding hides.
Case plain_case() {
  Case c = case_of({3, 4}, {dense(5), layer("gelu"), dense(2)});
  c.seed = 64;
  c.protocol.input_requires_grad = true;
  return c;
}

}  // namespace

TEST_CASE("the analysis computes what the engine computes, and bounds what it rounds") {
  EngineSubject engine;
  Reference reference;
  Record record;
  int analysed = 0;
  for (std::uint64_t i = 0; i < kCases; ++i) {
    INFO("case " << i << " of seed " << kSeed);
    const Case c = generate_case(Mix::wide, kSeed, i);
    const Geometry geometry = validate(c);
    if (!run_reference(c, geometry, {}, engine, reference)) continue;
    ++analysed;
    engine.run(c, geometry, {}, record);
    REQUIRE(record.observations.size() == reference.run.observations.size());
    for (std::size_t n = 0; n < record.observations.size(); ++n) {
      const Observation& o = record.observations[n];
      if (!o.present) continue;
      INFO("observation " << n << " of quantity " << static_cast<int>(o.quantity));
      CHECK_FALSE(misfit(reference, n, record, o));
    }
    const auto arrays = rounding::analyse(c, geometry, {});
    for (std::size_t n = 0; n < record.observations.size(); ++n) {
      const Observation& o = reference.run.observations[n];
      for (const rounding::BoundedArray& a : *arrays) {
        if (!o.present || a.quantity != o.quantity || a.step != o.step || a.index != o.index ||
            a.microbatch != o.microbatch) {
          continue;
        }
        const std::vector<double> right = elements_of(reference.run, o);
        REQUIRE(a.numbers.size() == right.size());
        for (std::size_t j = 0; j < right.size(); ++j) {
          const bool open = std::isinf(a.numbers[j].error);
          CHECK((open || std::fabs(a.numbers[j].value - right[j]) <= a.numbers[j].error));
        }
      }
    }
  }
  CHECK(analysed > static_cast<int>(kCases) / 3);
}

TEST_CASE("a plain run that is off by more than rounding disagrees with the reference") {
  Workspace workspace;
  for (const Quantity quantity : {Quantity::output, Quantity::loss, Quantity::parameter_gradient,
                                  Quantity::input_gradient, Quantity::parameter}) {
    INFO(static_cast<int>(quantity));
    Compiled off([&](bool, Record& r) { scale(r, quantity, 1.001F); });
    const Verdicts verdicts = judge_case(plain_case(), off, workspace);
    CHECK(of(verdicts, "agrees-with-reference") == Verdict::violated);
    REQUIRE(verdicts.violations.size() == 1);
    // Relative to the largest element, which is off by a thousandth as well.
    CHECK(std::fabs(verdicts.violations[0].distance.value() - 0.001) < 1e-5);
    Compiled rounded([&](bool, Record& r) { scale(r, quantity, 1 + 0x1p-23F); });
    CHECK(of(judge_case(plain_case(), rounded, workspace), "agrees-with-reference") ==
          Verdict::kept);
  }
}

TEST_CASE("from an overflow on nothing is compared with the reference") {
  // Training that diverges. Some elements of the weight meet the padding alone, so the reference
  // knows their gradient: zero. Who multiplies the padding by an infinite gradient gets no number.
  const Case c = case_from_json(R"({"format": 1, "seed": 64, "dtype": "float32",
    "data": "small_integers", "input": [1, 1, 2, 1],
    "layers": [{"kind": "conv2d", "features": 1, "kernel": 3, "padding": 1}, {"kind": "flatten"},
               {"kind": "linear", "features": 1}, {"kind": "linear", "features": 1}],
    "protocol": {"steps": 6, "learning_rate": 100}})");
  bool overflowed = false;
  const auto spoil = [&](bool, Record& r) {
    bool over = false;
    for (const Observation& o : r.observations) {
      if (!o.present) continue;
      if (over && o.quantity == Quantity::parameter_gradient) {
        scale(r, o, std::numeric_limits<float>::quiet_NaN());
      }
      for (const double value : elements_of(r, o)) over = over || !std::isfinite(value);
    }
    overflowed = overflowed || over;
  };
  Workspace workspace;
  Compiled multiplies(spoil);
  CHECK(of(judge_case(c, multiplies, workspace), "agrees-with-reference") == Verdict::kept);
  CHECK(overflowed);
  // Without an overflow no number is wrong.
  Compiled broken([](bool, Record& r) {
    scale(r, Quantity::parameter_gradient, std::numeric_limits<float>::quiet_NaN());
  });
  CHECK(of(judge_case(c, broken, workspace), "agrees-with-reference") == Verdict::violated);
}

TEST_CASE("where a layer draws there is no reference") {
  Workspace workspace;
  Compiled sound([](bool, Record&) {});
  const Case c = case_of({3, 4}, {dense(5), layer("dropout")});
  const Verdicts verdicts = judge_case(c, sound, workspace);
  CHECK(verdicts.kept());
  CHECK(of(verdicts, "agrees-with-reference") == Verdict::not_applicable);
  CHECK(of(verdicts, "outputs") == Verdict::not_applicable);
}

/// Elements of the outputs of 20 seeds, and those of them without a bound.
struct Outputs {
  int all = 0;
  int open = 0;
};
Outputs outputs_of(Case c) {
  Outputs found;
  for (c.seed = 0; c.seed < 20; ++c.seed) {
    const auto arrays = rounding::analyse(c, validate(c), {});
    for (const rounding::BoundedArray& a : *arrays) {
      for (const rounding::Bounded& n : a.numbers) {
        if (a.quantity != Quantity::output) continue;
        ++found.all;
        found.open += std::isinf(n.error);
      }
    }
  }
  return found;
}

TEST_CASE("nothing is said of a row that rounding could send to another expert") {
  LayerSpec experts = layer("moe");
  experts.experts = 3;
  Case c = case_of({8, 3}, {experts});
  CHECK(outputs_of(c).open == 0);
  // Two logits of small integers are often equal.
  c.data = DataKind::small_integers;
  const Outputs even = outputs_of(c);
  CHECK(even.open > 0);
  CHECK(even.open < even.all);
  // A row that all experts are given goes nowhere else.
  c.layers[0].top = 3;
  CHECK(outputs_of(c).open == 0);
}

TEST_CASE("nothing is said of a sample that rounding could send around a branch") {
  // A value that is given is exact, even where it is 0.
  Case c = case_of({8, 3}, {layer("early_exit")});
  CHECK(outputs_of(c).open == 0);
  c.data = DataKind::small_integers;
  CHECK(outputs_of(c).open == 0);
  // Sums of small integers are often 0, up to rounding.
  c.layers.insert(c.layers.begin(), dense(3));
  const Outputs even = outputs_of(c);
  CHECK(even.open > 0);
  CHECK(even.open < even.all);
}

TEST_CASE("near a tie of float8 a number may become either neighbour, elsewhere one") {
  LayerSpec spec = layer("delayed_scaling");
  spec.fp8 = true;
  rounding::Bounds t({0x1p-24, 0x1p-149, 0x1p127}, 1000);
  const auto in_float8 = [&](double x, double error, double top) {
    rounding::LayerRun run{t, spec, true, Shape{1}, {}, Shape{1}, {{t.leaf({x, error})}}, {}};
    run.buffers = {{t.leaf({0, 0}), t.leaf({0, 0}), t.leaf({0, 0}), t.leaf({top, 0})}};
    const rounding::Var y = layer_of(spec).bounds(run)[0][0];
    // The first is forgotten.
    CHECK(t[run.buffers[0][2]].value == top);
    CHECK(t[run.buffers[0][3]].value == std::fabs(x));
    // The gradient passes.
    CHECK(t.gradients(y)[static_cast<std::size_t>(run.operands[0][0])].value == 1);
    return t[y];
  };
  for (const double top : {0.0, 448.0, 896.0}) {
    const double scale = top == 896 ? 2 : 1;
    CAPTURE(top);
    CHECK(in_float8(1.07 * scale, 1e-7, top).value == 1.125 * scale);
    CHECK(in_float8(1.07 * scale, 1e-7, top).error < 1e-5);
    CHECK(in_float8(-600 * scale, 1, top).value == -448 * scale);
    CHECK(in_float8(-600 * scale, 1, top).error < 1e-2);
    CHECK(in_float8(1.0626 * scale, 1e-2, top).error >= 0.125 * scale);
    CHECK(in_float8(1.0626 * scale, 1e-2, top).error < 0.126 * scale);
    CHECK(std::isinf(in_float8(1, std::numeric_limits<double>::infinity(), top).error));
  }
}

TEST_CASE("a subject may round differently in its two runs, and be off by no more") {
  Workspace workspace;
  Compiled rounds([](bool, Record&) {});
  int judged = 0;
  for (std::uint64_t i = 0; i < kCases; ++i) {
    INFO("case " << i << " of seed " << kSeed);
    const Verdicts verdicts = judge_case(generate_case(Mix::wide, kSeed, i), rounds, workspace);
    CHECK(verdicts.kept());
    judged += of(verdicts, "parameter-gradients") == Verdict::kept;
  }
  CHECK(judged > static_cast<int>(kCases) / 4);

  Compiled wrong([](bool checkpointed, Record& r) {
    if (checkpointed) scale(r, Quantity::parameter_gradient, 1.01F);
  });
  const Verdicts verdicts = judge_case(plain_case(), wrong, workspace);
  REQUIRE_FALSE(verdicts.kept());
  CHECK(verdicts.first()->law == "parameter-gradients");
}

TEST_CASE("what the plain run misses the reference by is no fault of checkpointing") {
  Workspace workspace;
  Compiled coarse([](bool, Record& r) { scale(r, Quantity::output, 1.0005F); });
  const Verdicts verdicts = judge_case(plain_case(), coarse, workspace);
  CHECK(of(verdicts, "agrees-with-reference") == Verdict::violated);
  CHECK(of(verdicts, "outputs") == Verdict::kept);
}

}  // namespace rematch
