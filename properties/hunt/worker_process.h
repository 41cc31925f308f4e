#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "properties/hunt/hunt_options.h"
#include "properties/hunt/worker.h"
#include "properties/subjects/child_process.h"

namespace rematch {

// A process that works for a hunt answers each line with a line, of JSON:
//
//   {"hello": {}}                               {"hello": {"implements": [...], "versions": {...},
//                                                          "options": {...}, "shares": {...}}}
//   {"judge": {"begin": 5, "end": 6}}           {"tally": ...}
//   {"judge_case": {"index": 5, "case": ...}}   {"tally": ...}
//   {"shrink": ...}                             {"finding": ...}
//
// {"lost": {"index": 5, "what": ...}} says that the device was lost in this case, and
// {"error": ...} what else was thrown. Either is the last answer. The parts "..." are written
// by hunt/tally_json.h. The two ends have to be the same program with the same options.

/// A worker in a separate process, started by Schedule::worker.
class ProcessWorker final : public Worker {
 public:
  /// `variables` ("NAME=VALUE ...") are added to the environment. Throws std::runtime_error where
  /// the process does not start, with what it said.
  explicit ProcessWorker(const HuntOptions& options, const std::string& variables = "");

  const Scope& scope() const override { return scope_; }
  const Versions& versions() const override { return versions_; }
  void judge(CaseRange cases, const std::function<bool()>& go_on, Tally& tally) override;
  Tally judge(std::uint64_t index, const Case& c) override;
  Finding shrink(const ViolatingCase& violating) override;

 private:
  nlohmann::json ask(const std::string& request, const char* answer, CaseRange in_flight,
                     double limit, const std::atomic<bool>* stop = nullptr);
  Tally tally_of(const std::string& request, std::uint64_t index);

  const HuntOptions& options_;
  ChildProcess process_;
  Scope scope_;
  Versions versions_;
};

/// A process in place of one that was lost: after a fault an MPS server takes no clients until the
/// last one of before has gone, so it tries for a while.
std::unique_ptr<ProcessWorker> restart_process(const HuntOptions& options,
                                               const std::string& variables = "");

/// A worker in a process where the options ask for that, or a local one.
std::unique_ptr<Worker> make_worker(const HuntOptions& options);
/// As make_worker(), in place of one that may have been lost.
std::unique_ptr<Worker> restart_worker(const HuntOptions& options);

/// The other end: answers requests until there are no more, or until one failed in a way that ends
/// the hunt.
void serve_worker(const HuntOptions& options,
                  const std::function<std::optional<std::string_view>()>& next_request,
                  const std::function<void(const std::string&)>& answer);

}  // namespace rematch
