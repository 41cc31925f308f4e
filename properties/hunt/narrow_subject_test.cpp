// A subject that implements and observes little: what a first adapter of a framework looks like.
#include <catch2/catch_test_macros.hpp>

#include "properties/hunt/gather.h"
#include "properties/hunt/hunt.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

/// The engine's reentrant variant, of which only outputs and gradients are seen. With a fault, the
/// gradient of the model input comes out negated when anything is checkpointed.
class Narrow final : public Subject {
 public:
  explicit Narrow(bool faulty) : faulty_(faulty) {}
  const Declaration& declares() const override { return declaration_; }
  void run(const Case& c, const Geometry& geometry, const RunRequest& request,
           Record& record) override {
    if (!declaration_.scope.features.contains_all(features_of(c, geometry))) {
      throw std::invalid_argument("not implemented");
    }
    Record full;
    engine_.run(c, geometry, request, full);
    record.clear();
    record.error = full.error;
    record.data = full.data;
    for (const Observation& o : full.observations) {
      const bool seen = o.quantity == Quantity::output || o.quantity == Quantity::input_gradient ||
                        o.quantity == Quantity::parameter_gradient;
      if (seen) record.observations.push_back(o);
      const bool wrong = faulty_ && request.checkpointed && o.quantity == Quantity::input_gradient;
      if (!wrong || !o.present || segments_of(c).empty()) continue;
      record.data[o.offset + 3] ^= std::byte{0x80};
    }
  }

 private:
  bool faulty_;
  Declaration declaration_{
      .name = "narrow",
      .scope = FeatureSet::all().without(
          {Feature::non_reentrant, Feature::injected_failure, Feature::autocast, Feature::offload,
           Feature::conv2d, Feature::split, Feature::float64, Feature::adam, Feature::sequential}),
      .observes = {Observable::outputs, Observable::input_gradients,
                   Observable::parameter_gradients}};
  EngineSubject engine_;
};

HuntOptions hunt_of(bool faulty, Mix mix = Mix::wide) {
  HuntOptions options;
  options.mix = mix;
  options.cases = 4000;
  options.jobs = 2;
  options.make_subject = [faulty] { return std::make_unique<Narrow>(faulty); };
  return options;
}

}  // namespace

TEST_CASE("a subject that implements and observes little is hunted within that, and passes") {
  HuntOptions options = hunt_of(false);
  options.seed = 77;
  const HuntResult result = hunt(options);
  for (const std::string& s : result.shortfalls) FAIL_CHECK(s);
  CHECK(result.findings.empty());
  const auto count = [&](Feature f) { return result.features[static_cast<std::size_t>(f)]; };
  CHECK(count(Feature::reentrant) > 3000);
  CHECK(count(Feature::nested_4) > 100);
  for (const Feature f : {Feature::non_reentrant, Feature::early_stop, Feature::selective,
                          Feature::conv2d, Feature::split, Feature::float64, Feature::adam}) {
    CHECK(count(f) == 0);
  }
  const auto verdict = [&](std::string_view law, Verdict v) {
    return result.verdicts[index_of(*find_law(law))][static_cast<std::size_t>(v)];
  };
  CHECK(verdict("outputs", Verdict::kept) == 4000);
  CHECK(verdict("dropout-masks", Verdict::not_observed) == 4000);
  CHECK(verdict("saved-bytes", Verdict::not_observed) == 4000);
}

TEST_CASE("its fault is found, and shrinks without leaving what it implements") {
  const HuntResult result = hunt(hunt_of(true));
  REQUIRE(result.findings.size() == 1);
  const Finding& finding = result.findings[0];
  CHECK(finding.violation.law == "input-gradients");
  CHECK(finding.smallest.layers.size() == 1);
  const FeatureSet features = features_of(finding.smallest, validate(finding.smallest));
  CHECK(features.contains(Feature::reentrant));
  CHECK(Narrow(true).declares().scope.features.contains_all(features));
}

}  // namespace rematch
