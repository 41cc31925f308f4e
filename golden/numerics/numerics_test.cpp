#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <stdexcept>

#include "engine/testing/ledger_scope.h"
#include "golden/numerics/testing/numerics_file.h"
#include "properties/case/features.h"
#include "properties/case/geometry.h"
#include "properties/layers/layer.h"
#include "properties/rounding/reference.h"
#include "properties/subjects/engine_subject.h"
#include "properties/testing/shell.h"

namespace rematch::golden {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using testing::LedgerScope;

std::string place_of(const Observation& o) {
  constexpr const char* kNames[]{"output",    "loss",   "input gradient", "parameter gradient",
                                 "parameter", "buffer", "reevaluation"};
  return std::string(kNames[static_cast<std::size_t>(o.quantity)]) + " " + std::to_string(o.index) +
         " of step " + std::to_string(o.step) + ", microbatch " + std::to_string(o.microbatch);
}

const Observation* find(const Record& record, const Observation& like) {
  for (const Observation& o : record.observations) {
    if (o.quantity == like.quantity && o.step == like.step && o.microbatch == like.microbatch &&
        o.index == like.index) {
      return &o;
    }
  }
  return nullptr;
}

bool same_bits(const Record& a, const Observation& of_a, const Record& b, const Observation& of_b) {
  return of_a.bytes == of_b.bytes &&
         std::memcmp(a.bytes_of(of_a).data(), b.bytes_of(of_b).data(), of_a.bytes) == 0;
}

/// The engine's run of a case, and its run in float64 with bounds on what rounding may do.
struct EngineRuns {
  Record own;
  std::optional<Reference> reference;
};

EngineRuns run(const Case& c) {
  EngineSubject engine;
  const Geometry geometry = validate(c);
  EngineRuns runs;
  engine.run(c, geometry, {}, runs.own);
  Reference reference;
  if (run_reference(c, geometry, {}, engine, reference)) runs.reference = std::move(reference);
  return runs;
}

/// A line for each array that is not what PyTorch recorded, or that the engine's own dtype rounds
/// too much.
std::vector<std::string> mismatches_of(const Entry& entry, const EngineRuns& runs) {
  std::vector<std::string> lines;
  if (!entry.exact && !runs.reference) return {"nothing bounds what rounding may do"};
  if (runs.own.observations.size() != entry.torch.observations.size()) {
    lines.emplace_back("other quantities are observed");
  }
  for (std::size_t n = 0; n < runs.own.observations.size(); ++n) {
    const Observation& o = runs.own.observations[n];
    const Observation* const torch = find(entry.torch, o);
    const auto differs = [&](const std::string& how) { lines.push_back(place_of(o) + ": " + how); };
    if (torch == nullptr || torch->present != o.present) {
      differs("only one has it");
    } else if (!o.present) {
      continue;
    } else if (!(torch->shape == o.shape) || torch->dtype != o.dtype) {
      differs(to_string(torch->shape) + " expected, got " + to_string(o.shape));
    } else if (entry.exact) {
      if (!same_bits(runs.own, o, entry.torch, *torch)) differs("other bits");
    } else {
      // misfit() says nothing where a bound or the reference is not finite.
      const Record& wide = runs.reference->run;
      const std::vector<double> right = elements_of(wide, wide.observations[n]);
      for (std::size_t i = 0; i < right.size(); ++i) {
        if (!std::isfinite(runs.reference->bounds[n][i])) differs("nothing bounds an element");
        if (!std::isfinite(right[i])) differs("an element is no number in the engine");
      }
      if (const auto m = misfit(*runs.reference, n, entry.torch, *torch)) {
        differs("PyTorch has " + std::to_string(m->got) + " at " + std::to_string(m->element) +
                ", the engine " + std::to_string(m->expected));
      }
      if (misfit(*runs.reference, n, runs.own, o)) differs("rounded too much");
    }
  }
  return lines;
}

std::vector<std::string> mismatches_of(const Entry& entry) {
  return mismatches_of(entry, run(entry.c));
}

const Entry& entry_named(const std::vector<Entry>& entries, std::string_view name, DType dtype) {
  for (const Entry& e : entries) {
    if (e.name == name && e.c.dtype == dtype) return e;
  }
  throw std::runtime_error("no entry " + std::string(name));
}

/// The fields of a layer that have another value than the default.
std::set<std::string> fields_of(const LayerSpec& spec) {
  std::set<std::string> names;
  const LayerSpec plain;
  std::apply(
      [&](const auto&... fields) {
        ((spec.*fields.member == plain.*fields.member ? names.end()
                                                      : names.emplace(fields.name).first),
         ...);
      },
      FieldsOf<LayerSpec>::list);
  return names;
}

}  // namespace

TEST_CASE_METHOD(LedgerScope, "the engine computes what PyTorch computes, up to rounding") {
  for (const Entry& entry : read_numerics()) {
    for (const std::string& mismatch : mismatches_of(entry)) {
      FAIL_CHECK(entry.name << ", " << to_string(entry.c.dtype) << ": " << mismatch);
    }
  }
  SUCCEED();
}

TEST_CASE("every kind of layer is compared with PyTorch in both dtypes, with each of its fields") {
  // Of streams and frozen, shared or overwritten memory, laws speak that need no other framework.
  const std::set<std::string> others{"frozen", "tied_to", "in_place", "stream"};
  std::map<DType, std::map<LayerKind, std::set<std::string>>> found;
  for (const Entry& e : read_numerics()) {
    for (const LayerSpec& l : e.c.layers) found[e.c.dtype][l.kind].merge(fields_of(l));
  }
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (std::size_t i = 0; i < kLayerKinds; ++i) {
      const auto kind = static_cast<LayerKind>(i);
      if (kind == LayerKind::custom) continue;
      CAPTURE(to_string(kind), to_string(dtype));
      REQUIRE(found[dtype].contains(kind));
      std::apply(
          [&](const auto&... fields) {
            const auto check = [&](std::string_view name) {
              if (!layer_of(kind).fields.contains(name) || others.contains(std::string(name)))
                return;
              CAPTURE(name);
              CHECK(found[dtype][kind].contains(std::string(name)));
            };
            (check(fields.name), ...);
          },
          FieldsOf<LayerSpec>::list);
    }
  }
}

TEST_CASE("losses, optimizers and what a protocol does to gradients are compared with PyTorch") {
  std::map<DType, FeatureSet> found;
  for (const Entry& e : read_numerics()) {
    features_of(e.c, validate(e.c)).for_each([&](Feature f) { found[e.c.dtype].insert(f); });
  }
  FeatureSet expected{Feature::mse,
                      Feature::cross_entropy,
                      Feature::sgd,
                      Feature::momentum,
                      Feature::adam,
                      Feature::clipping,
                      Feature::several_steps,
                      Feature::accumulation,
                      Feature::prior_gradients,
                      Feature::several_losses,
                      Feature::reevaluate};
  CHECK(found[DType::float64].contains_all(expected));
  expected.insert(Feature::loss_scaling);
  CHECK(found[DType::float32].contains_all(expected));
}

TEST_CASE("no bound is so wide that it would let a wrong formula pass") {
  // Relative to the largest value: 2^-24 times some hundred roundings for a layer, and what three
  // steps of a model amplify; in float64 a millionth of a millionth.
  for (const Entry& entry : read_numerics()) {
    if (entry.exact) continue;
    const bool model = entry.name == "mlp" || entry.name == "cnn";
    const double allowed = entry.c.dtype == DType::float64 ? 1e-10 : model ? 0.1 : 1e-3;
    const EngineRuns runs = run(entry.c);
    for (std::size_t n = 0; n < runs.own.observations.size(); ++n) {
      const Observation& o = runs.own.observations[n];
      CAPTURE(entry.name, to_string(entry.c.dtype), place_of(o));
      if (!o.present) continue;
      double scale = 1;
      for (const double v : elements_of(runs.own, o)) scale = std::max(scale, std::abs(v));
      for (const double bound : runs.reference->bounds[n]) CHECK(bound <= allowed * scale);
    }
  }
}

TEST_CASE("a value that is off by a bit too much is found, wherever it stands") {
  const std::vector<Entry> entries = read_numerics();
  const auto lines = [](Entry entry, Quantity quantity, double by) {
    const EngineRuns runs = run(entry.c);
    REQUIRE(mismatches_of(entry, runs).empty());
    for (const Observation& o : entry.torch.observations) {
      if (o.quantity != quantity) continue;
      std::byte* const at = entry.torch.data.data() + o.offset + o.bytes - sizeof(double);
      double value = 0;
      std::memcpy(&value, at, sizeof(value));
      value += by;
      std::memcpy(at, &value, sizeof(value));
      break;
    }
    return mismatches_of(entry, runs).size();
  };
  const Entry& good = entry_named(entries, "batch_norm, rank 4", DType::float64);
  for (const Quantity quantity :
       {Quantity::output, Quantity::loss, Quantity::input_gradient, Quantity::parameter_gradient,
        Quantity::parameter, Quantity::buffer, Quantity::reevaluation}) {
    CAPTURE(static_cast<int>(quantity));
    CHECK(lines(good, quantity, 1e-11) == 1);
    CHECK(lines(good, quantity, std::nan("")) == 1);
  }
  // What is exact may not differ by a single bit.
  CHECK(lines(entry_named(entries, "add, exact", DType::float64), Quantity::output, 0x1p-50) == 1);
}

TEST_CASE("an array that is missing, or of another shape or dtype, is found") {
  const std::vector<Entry> entries = read_numerics();
  const Entry& good = entry_named(entries, "linear", DType::float32);
  const EngineRuns runs = run(good.c);
  Entry missing = good;
  missing.torch.observations[0].present = false;
  CHECK(mismatches_of(missing, runs).size() == 1);
  Entry shape = good;
  shape.torch.observations[0].shape = Shape{4, 3};
  CHECK(mismatches_of(shape, runs).size() == 1);
  Entry fewer = good;
  fewer.torch.observations.pop_back();
  CHECK(mismatches_of(fewer, runs).size() == 2);
  EngineRuns infinite = runs;
  const Observation& o = infinite.reference->run.observations[0];
  const double inf = std::numeric_limits<double>::infinity();
  std::memcpy(infinite.reference->run.data.data() + o.offset, &inf, sizeof(inf));
  CHECK(mismatches_of(good, infinite).size() == 1);
  Entry unbounded = good;
  LayerSpec& dropout = unbounded.c.layers.emplace_back();
  dropout.kind = LayerKind::dropout;
  dropout.p = 0.5;
  CHECK(mismatches_of(unbounded).size() == 1);
}

TEST_CASE("a numerics file of another format is refused, with the way out") {
  const auto refused = [](const std::string& text, const std::string& why) {
    INFO(text);
    CHECK_THROWS_MATCHES(
        parse_numerics(text), std::runtime_error,
        MessageMatches(
            ContainsSubstring("[golden] golden/numerics/numerics.json cannot be used: " + why) &&
            ContainsSubstring("; run golden/make_numerics")));
  };
  refused(R"({"format": 1, "cases": []})", "format 2 expected, got 1");
  refused(R"({"cases": []})", "format 2 expected, got 0");
  refused(R"({"format": 2})", "");
  refused(R"({"format": 2, "cases": [{"name": "add"}]})", "");
  refused("", "");
  CHECK(parse_numerics(R"({"format": 2, "cases": []})").empty());
}

// Hidden: golden/make_numerics runs it.
TEST_CASE("PyTorch's records are written", "[.numerics-record]") {
  const std::string text = recorded(testing::text_of(numerics_path()));
  std::ofstream(numerics_path()) << text;
}

}  // namespace rematch::golden
