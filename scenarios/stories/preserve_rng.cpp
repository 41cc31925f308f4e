// Does preserve_rng_state = False keep replicas consistent? Replicas: stories/preserve_rng/.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "scenarios/report/scenario.h"
#include "scenarios/stories/preserve_rng/replicas.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::preserve_rng_story {
namespace {

constexpr std::int64_t kElements = 16;
constexpr std::uint64_t kSeed = 3;

Tensors smallest_net(const Tensors& in) { return {dropout(in[0], 0.5)}; }

/// Observations of one step of the smallest net that can go wrong: dropout, and the sum as the
/// loss.
struct SmallStep {
  std::vector<double> output;
  std::vector<double> gradient;
  std::uint64_t offset = 0;
};

SmallStep small_step(const CheckpointOptions* options) {
  const AmbientScope scope(std::make_shared<Ledger>(), kSeed);
  const Tensor x = Tensor::ones({kElements}, DType::float32).set_requires_grad(true);
  const Tensor y =
      (options != nullptr ? checkpoint(smallest_net, {x}, *options) : smallest_net({x}))[0];
  backward(sum(y));
  return {y.to_vector(), x.grad().to_vector(), ambient().streams.states()[0].offset};
}

/// How much the loss of the plain forward grows when element i grows by one: exactly.
std::vector<double> slopes() {
  const auto loss = [](std::int64_t raised) {
    const AmbientScope scope(std::make_shared<Ledger>(), kSeed);
    std::vector<double> values(kElements, 1);
    if (raised >= 0) values[static_cast<std::size_t>(raised)] = 2;
    return sum(smallest_net({Tensor::from(values, {kElements})})[0]).item();
  };
  std::vector<double> result;
  for (std::int64_t i = 0; i < kElements; ++i) result.push_back(loss(i) - loss(-1));
  return result;
}

std::string kept_text(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += value != 0 ? "●" : "·";
  return text;
}

std::string error_of(DeterminismCheck check) {
  const CheckpointOptions options{.preserve_rng = false, .determinism = check};
  return scenarios::error_of<CheckpointError>([&] { small_step(&options); });
}

void smallest(Report& report) {
  report.say(
      "**The smallest net that goes wrong** is dropout alone: {} ones, half of them dropped, and "
      "the sum as the loss. The gradient of an element is 2 where it was kept and 0 where it was "
      "dropped; shown are the elements that were kept.",
      kElements);
  Table& table = report.table("Dropout of sixteen elements, one step",
                              {"run", "kept in the forward", "kept according to the gradient",
                               "wrong elements", "random numbers used"});
  const std::vector<double> truth = slopes();
  const SmallStep plain = small_step(nullptr);
  bool right = plain.gradient == truth;
  bool wrong = true, drifts = true;
  const auto add = [&](const std::string& name, const SmallStep& step) {
    std::int64_t errors = 0;
    for (std::size_t i = 0; i < truth.size(); ++i) errors += step.gradient[i] != truth[i];
    table.row({name, kept_text(step.output), kept_text(step.gradient), errors, step.offset});
    return errors;
  };
  add("plain", plain);
  for (const bool preserve : {true, false}) {
    for (const bool reentrant : {false, true}) {
      const CheckpointOptions options{.reentrant = reentrant, .preserve_rng = preserve};
      const SmallStep step = small_step(&options);
      const std::int64_t errors = add(
          fmt::format("{}, preserve_rng {}", reentrant ? "reentrant" : "non-reentrant", preserve),
          step);
      if (preserve) right &= errors == 0 && step.offset == plain.offset;
      if (!preserve) wrong &= errors > 0 && step.output == plain.output;
      if (!preserve) drifts &= step.offset == 2 * plain.offset;
    }
  }
  report.claim(right,
               "Preserved, the gradient is the slope of the loss that was computed, element by "
               "element, and the step uses as many random numbers as the plain one.");
  report.claim(wrong && drifts,
               "Not preserved, the forward is the same, the recomputation draws a mask of its own "
               "and the gradient belongs to that one. Whatever is drawn later is shifted too, for "
               "the step used twice as many random numbers.");
  const std::string error = error_of(DeterminismCheck::values);
  report.claim(error_of(DeterminismCheck::metadata).empty() && !error.empty(),
               "Nobody is told: shapes agree. Only a comparison of bits finds it "
               "(`DeterminismCheck::values`): \"{}\".",
               error);
}

/// Whether that is the same in all replicas.
template <class T>
bool alike(const Training& t, T Replica::*what) {
  return std::all_of(t.replicas.begin(), t.replicas.end(),
                     [&](const Replica& r) { return r.*what == t.replicas[0].*what; });
}

/// Whether every replica has the same in both.
template <class T>
bool same(const Training& a, const Training& b, T Replica::*what) {
  return std::equal(
      a.replicas.begin(), a.replicas.end(), b.replicas.begin(),
      [&](const Replica& one, const Replica& other) { return one.*what == other.*what; });
}

/// Every recomputed mask is the one drawn before it.
bool recomputations_match(const Training& t) {
  return std::all_of(t.replicas.begin(), t.replicas.end(),
                     [](const Replica& r) { return r.recomputed_masks == r.masks; });
}

void four_replicas(Report& report) {
  constexpr int kReplicas = 4;
  report.say(
      "**Replicas.** \"Setting preserve_rng_state=False can be crucial to ensure that the random "
      "number generator state is consistent across replicas.\" Here are {} replicas on {} threads, "
      "with equal weights and data of their own; dropout and the layer behind it are checkpointed; "
      "gradients are averaged and every replica makes the same step, twice.",
      kReplicas, kReplicas);
  Table& table = report.table(
      "Four data-parallel replicas, two steps",
      {"seeds", "checkpointed", "masks alike in all replicas", "recomputed masks alike in all",
       "recomputed = drawn before", "weights alike in all", "gradient = plain run's",
       "random state = plain run's"});
  bool preserved = true, lost = true, weights = true, nothing_gained = true;
  for (const bool own : {true, false}) {
    const auto run = [&](const Mode& mode) {
      return train({.modes = std::vector<Mode>(kReplicas, mode), .own_seeds = own, .steps = 2});
    };
    const Training plain = run({});
    const char* const seeds = own ? "one each" : "the same";
    table.row({seeds, "no", yes(alike(plain, &Replica::masks)), "-", "-",
               yes(alike(plain, &Replica::weights)), "-", "-"});
    weights &= alike(plain, &Replica::weights);
    bool recomputes_alike[2] = {};
    for (const bool preserve : {true, false}) {
      for (const bool reentrant : {false, true}) {
        const Training t = run({true, preserve, reentrant});
        const bool matched = recomputations_match(t);
        const bool gradients = same(t, plain, &Replica::gradients);
        const bool random = same(t, plain, &Replica::random);
        recomputes_alike[preserve] = alike(t, &Replica::recomputed_masks);
        weights &= alike(t, &Replica::weights);
        if (preserve) preserved &= matched && gradients && random;
        if (preserve) preserved &= same(t, plain, &Replica::weights);
        if (!preserve) lost &= !matched && !gradients && !random;
        if (reentrant) continue;
        table.row({seeds, fmt::format("preserve_rng {}", preserve), yes(alike(t, &Replica::masks)),
                   yes(recomputes_alike[preserve]), yes(matched), yes(alike(t, &Replica::weights)),
                   yes(gradients), yes(random)});
      }
    }
    nothing_gained &= recomputes_alike[0] == recomputes_alike[1];
  }
  report.claim(preserved,
               "With preserve_rng on, and seeds of any kind, every replica recomputes the mask "
               "that it drew; gradients, weights and random state equal those of the plain "
               "data-parallel run to the bit. In both variants.");
  report.claim(lost,
               "With it off no replica does: the averaged gradient is wrong, and all random states "
               "have run ahead of the plain run's.");
  report.claim(
      weights,
      "Replicas end with equal weights in every row, even in the wrong ones: averaging the "
      "gradients makes them equal, not the random state. So equal weights prove nothing.");
  report.claim(nothing_gained,
               "Nothing becomes consistent that was not: recomputed masks are alike across "
               "replicas exactly when the seeds are, with preserve_rng on or off.");

  const auto mixed = [&](bool preserve) {
    std::vector<Mode> modes(kReplicas);
    for (int i = 0; i < kReplicas / 2; ++i) modes[static_cast<std::size_t>(i)] = {true, preserve};
    return train({.modes = modes, .own_seeds = false, .steps = 2});
  };
  report.claim(alike(mixed(true), &Replica::masks) && !alike(mixed(false), &Replica::masks),
               "It is the other way round: where only two of the four replicas checkpoint, and all "
               "share a seed because they are to draw alike, off tears them apart. From the second "
               "step on their forwards draw different masks; on, they stay alike.");
}

void training(const Options& options, Report& report) {
  constexpr int kSteps = 300;
  report.say(
      "**\"Potentially affecting convergence\"** is too mild. The same four replicas learn a "
      "product of two inputs; the loss is that of all data, with dropout off.");
  Chart chart = lines("Loss over 300 steps of four replicas", "steps", "mean square error");
  std::vector<std::vector<double>> losses;
  const std::pair<const char*, Mode> kRuns[] = {
      {"plain", {}}, {"preserve_rng on", {true, true}}, {"preserve_rng off", {true, false}}};
  for (const auto& [name, mode] : kRuns) {
    if (options.stopped()) return;
    const Training t = train({.modes = std::vector<Mode>(4, mode),
                              .steps = kSteps,
                              .learning_rate = 0.2,
                              .evaluate = true});
    losses.push_back(t.losses);
    chart.series.push_back(numbered(name, t.losses));
  }
  report.chart(std::move(chart));
  report.claim(
      losses[0] == losses[1],
      "The curve with preserve_rng on is the plain one, to the last bit of all 300 losses.");
  const auto late = [](const std::vector<double>& all) {
    constexpr int kLate = 100;
    return std::accumulate(all.end() - kLate, all.end(), 0.0) / kLate;
  };
  report.claim(late(losses[2]) > 2 * late(losses[0]),
               "With it off, learning stalls: over the last 100 steps the loss is {:.3f} on "
               "average, against {:.3f}.",
               late(losses[2]), late(losses[0]));
}

void when_off(Report& report) {
  const auto run = [](bool preserve) {
    return train({.modes = std::vector<Mode>(4, Mode{true, preserve}), .steps = 2, .dropout = 0});
  };
  const Training on = run(true);
  const Training off = run(false);
  report.claim(
      same(on, off, &Replica::gradients) && same(on, off, &Replica::weights) &&
          same(on, off, &Replica::random),
      "Off is right for a region that draws nothing: without dropout both give the same bits. What "
      "it saves is a copy of the random state, here {} bytes for each stream and region.",
      sizeof(Generator));
  report.say(
      "**What to do.** Leave `preserve_rng` on wherever a checkpointed part may draw. Replicas "
      "that are to draw differently need different seeds, replicas that are to draw alike need the "
      "same one; neither has to do with recomputations. In the wild: allenai/OLMo-core, pull "
      "request 828, where the flag had been fixed to False, reports a cross entropy of 2.495 with "
      "checkpointing and 2.195 without, at step 150.");
}

}  // namespace

void run(const Options& options, Report& report) {
  smallest(report);
  four_replicas(report);
  training(options, report);
  when_off(report);
}

}  // namespace rematch::scenarios::preserve_rng_story
