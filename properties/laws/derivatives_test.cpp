#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>

#include "properties/forecast/testing/small_cases.h"
#include "properties/hunt/gather.h"
#include "properties/hunt/hunt.h"
#include "properties/laws/slope.h"
#include "properties/subjects/testing/changed.h"

namespace rematch {
namespace {

template <class T>
void scale(double factor, Record& record, const Observation& o) {
  for (std::size_t at = o.offset; at < o.offset + o.bytes; at += sizeof(T)) {
    T value{};
    std::memcpy(&value, record.data.data() + at, sizeof(T));
    value = static_cast<T>(value * factor);
    std::memcpy(record.data.data() + at, &value, sizeof(T));
  }
}

/// Hunts in an engine whose gradients of one quantity are multiplied by a factor, in plain and
/// checkpointed runs alike: no comparison of the two can see it.
HuntResult hunt_for(Quantity quantity, double factor) {
  HuntOptions options;
  options.cases = 2000;
  options.make_subject = [=] {
    return std::make_unique<testing::Changed>(EngineSubject().declares(),
                                              [=](const Case&, const RunRequest&, Record& record) {
                                                for (const Observation& o : record.observations) {
                                                  if (o.quantity != quantity || !o.present)
                                                    continue;
                                                  if (o.dtype == DType::float64)
                                                    scale<double>(factor, record, o);
                                                  if (o.dtype == DType::float32)
                                                    scale<float>(factor, record, o);
                                                }
                                              });
  };
  return hunt(options);
}

/// The smallest case with a slope: one linear layer.
Case one_layer() {
  Case c = testing::case_of({2, 3}, {testing::dense(2)});
  c.seed = 7;
  c.dtype = DType::float64;
  return c;
}

}  // namespace

TEST_CASE("a gradient that is no number agrees with no slope") {
  constexpr double kDistance = 0x1p-17;
  SlopeSamples samples{.by_gradients = 1, .middle = 1, .magnitude = 1, .around = {}};
  const SlopeSample sample{kDistance, 1 + kDistance, 1 - kDistance, 1 + kDistance / 2,
                           1 - kDistance / 2};
  CHECK(agrees(samples, sample));
  for (const double wrong : {1.5, -1.0, HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    samples.by_gradients = wrong;
    CHECK_FALSE(agrees(samples, sample));
  }
}

TEST_CASE("gradients that plain and checkpointed run count twice alike are caught and shrunk") {
  for (const Quantity q : {Quantity::parameter_gradient, Quantity::input_gradient}) {
    const HuntResult result = hunt_for(q, 2);
    REQUIRE(result.findings.size() == 1);
    CHECK(result.findings[0].violation.law == "derivatives");
    CHECK(result.findings[0].smallest.layers.size() <= 4);
  }
}

TEST_CASE("gradients that are off by one part in a thousand are caught") {
  for (const Quantity q : {Quantity::parameter_gradient, Quantity::input_gradient}) {
    const HuntResult result = hunt_for(q, 1.001);
    REQUIRE(result.findings.size() == 1);
    CHECK(result.findings[0].violation.law == "derivatives");
  }
}

TEST_CASE("a slope is measured in float64 on continuous data, where nothing is detached") {
  Case c = one_layer();
  CHECK(has_slope(c, forecast(c, validate(c))));
  c.data = DataKind::small_integers;
  CHECK_FALSE(has_slope(c, forecast(c, validate(c))));
  c = one_layer();
  c.dtype = DType::float32;
  CHECK_FALSE(has_slope(c, forecast(c, validate(c))));
  c = one_layer();
  c.plan.segments = {testing::segment(0, 1, Variant::reentrant)};
  CHECK_FALSE(has_slope(c, forecast(c, validate(c))));
}

TEST_CASE("a slope is measured where no forward of the step changes what a later one reads") {
  const auto measured = [](int microbatches, bool train, bool trial, bool eval = false) {
    Case c = one_layer();
    c.layers = {testing::layer("delayed_scaling")};
    c.layers[0].eval = eval;
    c.plan.segments.clear();
    c.protocol.microbatches = microbatches;
    c.protocol.train = train;
    c.protocol.input_requires_grad = true;
    if (trial) c.protocol.failure.kind = FailureKind::forward_throws;
    return has_slope(c, forecast(c, validate(c)));
  };
  CHECK(measured(1, true, false));
  CHECK_FALSE(measured(2, true, false));
  CHECK_FALSE(measured(1, true, true));
  CHECK(measured(2, false, false));
  CHECK(measured(2, true, true, true));
}

TEST_CASE("the slope of a staircase is not measured, for its gradients pass it") {
  Case c = one_layer();
  c.layers.insert(c.layers.begin(), testing::layer("delayed_scaling"));
  CHECK(has_slope(c, forecast(c, validate(c))));
  c.layers[0].fp8 = true;
  for (const bool train : {true, false}) {
    c.protocol.train = train;
    CHECK_FALSE(has_slope(c, forecast(c, validate(c))));
  }
}

TEST_CASE("the law of derivatives counts every backward and leaves prior gradients out") {
  EngineSubject engine;
  Workspace workspace;
  Case c = one_layer();
  const LawSet derivatives = laws_named({"derivatives"});
  for (const bool prior : {false, true}) {
    for (const int backwards : {1, 3}) {
      for (const int microbatches : {1, 2}) {
        c.protocol.prior_gradients = prior;
        c.protocol.backwards = backwards;
        c.protocol.microbatches = microbatches;
        c.protocol.input_requires_grad = true;
        CHECK(judge_case(c, engine, workspace, derivatives).count(Verdict::kept) == 1);
      }
    }
  }
}

TEST_CASE("a displaced run records the losses of the first step alone") {
  EngineSubject engine;
  Record record;
  Case c = one_layer();
  c.protocol.steps = 2;
  c.protocol.microbatches = 2;
  RunRequest request;
  request.displacement = 0.5;
  engine.run(c, validate(c), request, record);
  CHECK_FALSE(record.error);
  int losses = 0;
  for (const Observation& o : record.observations) {
    CHECK(o.step == 0);
    CHECK(o.quantity != Quantity::parameter_gradient);
    losses += o.quantity == Quantity::loss ? 1 : 0;
  }
  CHECK(losses == 2);
}

}  // namespace rematch
