#include "properties/hunt/worker_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/cuda/runtime/device.h"
#include "properties/case/json.h"
#include "properties/case/json_fields.h"
#include "properties/case/options_json.h"
#include "properties/hunt/tally_json.h"
#include "properties/layers/feature.h"
#include "properties/record/machine.h"

namespace rematch {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kWorker = "worker";
constexpr std::size_t kLongestWorkerText = std::size_t{1} << 16;
/// A device that others use may take long to be there, whatever a case may take.
constexpr double kLeastStart = 60;

}  // namespace

// A signal to everything that belongs to the hunt must not end a process that has no handler yet.
ProcessWorker::ProcessWorker(const HuntOptions& options, const std::string& variables)
    : options_(options), process_("trap '' INT TERM; " + variables + " exec " + options.worker) {
  const Json hello =
      ask(R"({"hello":{}})", "hello", {}, std::max(options.worker_limit, kLeastStart));
  JsonFields fields(kWorker, hello, "hello");
  FeatureSet implemented;
  fields.read_names("implements", fields.need("implements"), "the name of a feature", feature_named,
                    [&](Feature feature) { implemented.insert(feature); });
  scope_ = implemented;
  scope_.options = read_options(fields);
  for (const auto& [name, version] : fields.need("versions").items()) {
    if (!version.is_string()) fields.fail(fields.path("versions"), "texts", show_json(version));
    versions_[name] = version.get<std::string>();
  }
  fields.finish();
}

Json ProcessWorker::ask(const std::string& request, const char* answer, CaseRange in_flight,
                        double limit, const std::atomic<bool>* stop) {
  Json json;
  try {
    json = parse_tally_text(
        process_.exchange(request, ChildProcess::Seconds(limit), "a worker", stop));
  } catch (const ProcessFailure& failure) {
    if (in_flight.begin == in_flight.end) throw;
    throw WorkerLost(failure.what(), in_flight);
  }
  JsonFields fields(kWorker, json, "answer");
  if (const Json* lost = fields.find("lost")) {
    JsonFields loss(kWorker, *lost, "answer.lost");
    const auto index = loss.integer<std::uint64_t>(loss.need("index"), loss.path("index"));
    std::string what;
    loss.read("what", what, kLongestWorkerText);
    throw WorkerLost(process_.with_printed(what), {index, index + 1});
  }
  std::string error;
  fields.read("error", error, kLongestWorkerText);
  if (!error.empty()) throw std::runtime_error(process_.with_printed(error));
  Json value = fields.need(answer);
  fields.finish();
  return value;
}

Tally ProcessWorker::tally_of(const std::string& request, std::uint64_t index) {
  Tally tally = tally_from_json(ask(request, "tally", {index, index + 1}, options_.worker_limit));
  if (tally.cases != 1) json_fail(kWorker, "tally.cases", "1", std::to_string(tally.cases));
  // Entries of the profile have the same numbers at both ends.
  for (const auto& [entry, count] : tally.known) {
    if (entry >= options_.profile.entries().size()) {
      json_fail(kWorker, "known", "an entry of the profile", std::to_string(entry));
    }
  }
  return tally;
}

void ProcessWorker::judge(CaseRange cases, const std::function<bool()>& go_on, Tally& tally) {
  // One at a time, so that it is known which one a lost process had.
  for (std::uint64_t index = cases.begin; index < cases.end && go_on(); ++index) {
    tally.add(
        tally_of(fmt::format(R"({{"judge":{{"begin":{},"end":{}}}}})", index, index + 1), index),
        std::numeric_limits<std::size_t>::max());
    if (!options_.keep_going && !tally.violating.empty()) break;
  }
}

Tally ProcessWorker::judge(std::uint64_t index, const Case& c) {
  const Json request{{"judge_case", {{"index", index}, {"case", Json::parse(to_json(c))}}}};
  return tally_of(line_of(request), index);
}

Finding ProcessWorker::shrink(const ViolatingCase& violating) {
  const double limit = options_.shrink.seconds + 2 * options_.worker_limit;
  return finding_from_json(ask(fmt::format(R"({{"shrink":{}}})", to_json(violating)), "finding",
                               {violating.index, violating.index + 1}, limit, options_.stop));
}

std::unique_ptr<ProcessWorker> restart_process(const HuntOptions& options,
                                               const std::string& variables) {
  constexpr int kAttempts = 5;
  for (int attempt = 1;; ++attempt) {
    try {
      return std::make_unique<ProcessWorker>(options, variables);
    } catch (const std::exception&) {
      if (attempt == kAttempts || options.stopped()) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

std::unique_ptr<Worker> make_worker(const HuntOptions& options) {
  if (options.worker.empty()) return local_worker(options);
  return std::make_unique<ProcessWorker>(options);
}

std::unique_ptr<Worker> restart_worker(const HuntOptions& options) {
  if (options.worker.empty()) return local_worker(options);
  return restart_process(options);
}

namespace {

/// Answers to requests, and where they have come to.
class Server {
 public:
  explicit Server(const HuntOptions& options) : options_(options) {}

  std::string answer_to(std::string_view request) {
    const Json json = parse_tally_text(request);
    JsonFields fields(kWorker, json, "request");
    if (fields.find("hello") != nullptr) {
      worker_ = local_worker(options_);
      Json implements = Json::array();
      worker_->scope().features.for_each([&](Feature f) { implements.push_back(to_string(f)); });
      Json hello{{"implements", implements}, {"versions", worker_->versions()}};
      write_options(worker_->scope().options, hello);
      return line_of({{"hello", hello}});
    }
    if (!worker_) json_fail(kWorker, "request", "hello first", show_json(json));
    if (const Json* judge = fields.find("judge")) {
      JsonFields range(kWorker, *judge, "judge");
      const auto begin = range.integer<std::uint64_t>(range.need("begin"), range.path("begin"));
      const auto end = range.integer<std::uint64_t>(range.need("end"), range.path("end"));
      Tally tally;
      worker_->judge(
          {begin, end},
          [&] {
            index_ = begin + tally.cases;
            return true;
          },
          tally);
      return fmt::format(R"({{"tally":{}}})", to_json(tally));
    }
    if (const Json* one = fields.find("judge_case")) {
      JsonFields given(kWorker, *one, "judge_case");
      index_ = given.integer<std::uint64_t>(given.need("index"), given.path("index"));
      const Case c = case_from_json(given.need("case").dump());
      return fmt::format(R"({{"tally":{}}})", to_json(worker_->judge(index_, c)));
    }
    const ViolatingCase violating = violating_from_json(fields.need("shrink"));
    index_ = violating.index;
    return fmt::format(R"({{"finding":{}}})", to_json(worker_->shrink(violating)));
  }

  /// The number of the case that is being judged.
  std::uint64_t index() const { return index_; }

 private:
  const HuntOptions& options_;
  std::unique_ptr<Worker> worker_;
  std::uint64_t index_ = 0;
};

}  // namespace

void serve_worker(const HuntOptions& options,
                  const std::function<std::optional<std::string_view>()>& next_request,
                  const std::function<void(const std::string&)>& answer) {
  Server server(options);
  while (const std::optional<std::string_view> request = next_request()) {
    try {
      answer(server.answer_to(*request));
    } catch (const cuda::DeviceLost& lost) {
      return answer(line_of({{"lost", {{"index", server.index()}, {"what", lost.what()}}}}));
    } catch (const std::exception& error) {
      return answer(line_of({{"error", describe(error)}}));
    }
  }
}

}  // namespace rematch
