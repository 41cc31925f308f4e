#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "properties/output/terminal.h"
#include "scenarios/stories/frozen_first_block/parts.h"
#include "scenarios/stories/frozen_first_block/training.h"
#include "scenarios/support/options.h"

namespace rematch::scenarios::frozen {
namespace {

struct Epoch {
  double train_loss = 0;  ///< Mean over the epoch's batches.
  Score test;
};

/// A picture trained on costs about as much as three that are only scored.
constexpr std::int64_t kTrainingCost = 3;

/// Pictures that no run trains on.
constexpr std::int64_t kFirstTest = std::int64_t{1} << 40;
constexpr std::int64_t kTests = 1'000;

/// One run in a thread of its own.
class Course {
 public:
  /// `label`: what progress calls it.
  Course(std::int64_t samples, Wiring wiring, std::string label, int epochs)
      : samples_(samples),
        label_(std::move(label)),
        epochs_wanted_(epochs),
        training_(std::move(wiring), kSeed) {}

  /// Until all epochs are done or stop() was called; an epoch that was begun is then dropped.
  void run() {
    try {
      for (int e = 0; e < epochs_wanted_ && !stop_; ++e) run_epoch(e);
    } catch (...) {
      error_ = std::current_exception();
      failed_ = true;
    }
  }

  void stop() { stop_ = true; }
  bool failed() const { return failed_; }
  /// Share of the work that is done.
  double progress() const {
    return static_cast<double>(done_) / static_cast<double>(work_an_epoch() * epochs_wanted_);
  }
  /// "plain 3/10: 0.451"
  std::string state() const {
    const auto epoch = std::min<std::int64_t>(done_ / work_an_epoch() + 1, epochs_wanted_);
    return fmt::format("{} {}/{}: {:.3f}", label_, epoch, epochs_wanted_, loss_.load());
  }
  const std::string& name() const { return training_.wiring().name; }

  /// Once run() has returned. Throws what it met.
  const std::vector<Epoch>& epochs() const {
    if (error_) std::rethrow_exception(error_);
    return epochs_;
  }
  std::uint64_t short_hash() const { return short_hash_; }

 private:
  void run_epoch(int number) {
    const std::vector<std::int64_t> order = epoch_order(samples_, number);
    Epoch epoch;
    const auto count = static_cast<std::int64_t>(order.size());
    int step = 0;
    for (std::int64_t first = 0; first < count; first += kBatch) {
      if (stop_) return;
      const std::int64_t size = std::min(kBatch, count - first);
      const auto numbers =
          std::span(order).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size));
      const double loss = training_.step(numbers).loss;
      epoch.train_loss += loss * static_cast<double>(size) / static_cast<double>(count);
      loss_ = loss;
      done_ += kTrainingCost * size;
      if (number == 0 && ++step == kShortSteps) short_hash_ = hash_of(training_.parameters());
    }
    const std::optional<Score> score =
        training_.score(kFirstTest, kTests, [this](std::int64_t pictures) {
          done_ += pictures;
          return !stop_;
        });
    if (!score) return;
    epoch.test = *score;
    epochs_.push_back(epoch);
  }

  std::int64_t work_an_epoch() const { return kTrainingCost * samples_ + kTests; }

  const std::int64_t samples_;
  const std::string label_;
  const int epochs_wanted_;
  Training training_;
  std::vector<Epoch> epochs_;
  std::uint64_t short_hash_ = 0;
  std::exception_ptr error_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> failed_ = false;
  std::atomic<std::int64_t> done_ = 0;
  std::atomic<double> loss_ = 0;
};

/// "2 h 5 min", "12 min", "40 s"
std::string duration(double seconds) {
  const long long whole = std::llround(seconds);
  if (whole >= 3600) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  return whole >= 120 ? fmt::format("{} min", whole / 60) : fmt::format("{} s", whole);
}

/// Runs all courses, each in a thread; returns when all are done or have stopped. Returns the time
/// in seconds.
double run_all(std::vector<std::unique_ptr<Course>>& courses, const Options& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  std::vector<std::future<void>> running;
  running.reserve(courses.size());
  for (const auto& course : courses) {
    running.push_back(std::async(std::launch::async, [&c = *course] { c.run(); }));
  }
  double last_word = 0;
  for (std::future<void>& course : running) {
    while (course.wait_for(std::chrono::milliseconds(200)) != std::future_status::ready) {
      const bool failed =
          std::any_of(courses.begin(), courses.end(), [](const auto& c) { return c->failed(); });
      if (failed || stopped(options)) {
        for (const auto& c : courses) c->stop();
      }
      if (!options.progress || elapsed() - last_word < 1) continue;
      last_word = elapsed();
      double done = 1;
      std::string states;
      for (const auto& c : courses) {
        done = std::min(done, c->progress());
        states += c->state() + ", ";
      }
      options.progress(states + (done > 0.002 ? duration(elapsed() * (1 - done) / done) + " left"
                                              : "the time left is not known yet"));
    }
  }
  return elapsed();
}

Series curve(const Course& course, double (*value)(const Epoch&)) {
  Series series{course.name(), {}, {}};
  for (const Epoch& e : course.epochs()) {
    series.x.push_back(static_cast<double>(series.x.size() + 1));
    series.y.push_back(value(e));
  }
  return series;
}

/// The curves of all courses, as far as each has come.
Chart chart_of(const std::vector<std::unique_ptr<Course>>& courses, std::string title,
               std::string y_label, double (*value)(const Epoch&)) {
  Chart chart{std::move(title), "epoch", std::move(y_label), Chart::Kind::lines, {}, {}};
  for (const auto& c : courses) chart.series.push_back(curve(*c, value));
  return chart;
}

}  // namespace

void tell_long_runs(std::int64_t samples, const Options& options, std::uint64_t short_hash,
                    Report& report) {
  std::vector<std::unique_ptr<Course>> courses;
  const auto add = [&](const char* label, Wiring wiring) {
    courses.push_back(std::make_unique<Course>(samples, std::move(wiring), label, options.epochs));
  };
  add("plain", {.name = "plain"});
  add("block 1",
      {.name = "only block 1 checkpointed", .first_checkpointed = true, .reentrant = true});
  add("both", {.name = "the thread's version",
               .first_checkpointed = true,
               .second_checkpointed = true,
               .reentrant = true});
  const double seconds = run_all(courses, options);

  std::size_t common = courses[0]->epochs().size();
  for (const auto& c : courses) common = std::min(common, c->epochs().size());
  const Course& plain = *courses[0];
  report.say(
      fmt::format("The same, for {} of {} epochs of {} pictures, judged by {} others after each. "
                  "The three fixes are left out: they were seen to be the plain run, bit "
                  "for bit, in the steps above, and these steps are the first ones of this run.",
                  common, options.epochs, cli::grouped(samples), cli::grouped(kTests)));
  report.measured(fmt::format("epochs done by all three runs, a thread each: {}, in {}", common,
                              duration(seconds)));
  if (common == 0) {
    report.say("It was stopped before the first epoch was over: there is nothing to draw.");
    return;
  }
  report.claim(plain.short_hash() == short_hash,
               fmt::format("After {} steps the plain run's weights have the bits that they had in "
                           "the short form.",
                           kShortSteps));
  Table& table =
      report.table("Test loss and share of test pictures put into the right class, by epoch",
                   {"epoch", courses[0]->name(), courses[1]->name(), courses[2]->name()});
  for (std::size_t e = 0; e < common; ++e) {
    std::vector<std::string> cells{fmt::to_string(e + 1)};
    for (const auto& c : courses) {
      const Score& score = c->epochs()[e].test;
      cells.push_back(fmt::format("{:.4f}, {:.2f} %", score.loss, 100 * score.accuracy));
    }
    table.row(std::move(cells));
  }
  report.chart(chart_of(courses, "Training loss by epoch", "mean cross-entropy",
                        [](const Epoch& e) { return e.train_loss; }));
  report.chart(chart_of(courses, "Test loss by epoch", "mean cross-entropy",
                        [](const Epoch& e) { return e.test.loss; }));
  report.chart(chart_of(courses, "Test pictures put into the right class, by epoch", "percent",
                        [](const Epoch& e) { return 100 * e.test.accuracy; }));
  const Epoch& best = plain.epochs()[common - 1];
  const Epoch& one = courses[1]->epochs()[common - 1];
  const Epoch& both = courses[2]->epochs()[common - 1];
  report.claim(
      both.train_loss > best.train_loss && both.test.accuracy < best.test.accuracy,
      fmt::format(
          "After {} the plain run's test loss is {:.4f}, that of the thread's version "
          "{:.4f}, {:.1f} times as much; {:.2f} % against {:.2f} % of the test pictures are "
          "put into the right class. (The thread's 1.59 is 2.2 times its 0.72, of CIFAR-10 and "
          "with an optimizer that it does not name.)",
          common == 1 ? "one epoch" : fmt::format("{} epochs", common), best.test.loss,
          both.test.loss, both.test.loss / best.test.loss, 100 * best.test.accuracy,
          100 * both.test.accuracy));
  report.claim(
      one.train_loss - best.train_loss < 0.5 * (both.train_loss - best.train_loss),
      fmt::format("Freezing block 1 alone costs {:.4f} of training loss, freezing both "
                  "{:.4f}: the first block, which the thread blames, is not the half of it.",
                  one.train_loss - best.train_loss, both.train_loss - best.train_loss));
}

}  // namespace rematch::scenarios::frozen
