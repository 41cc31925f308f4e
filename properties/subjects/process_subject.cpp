#include "properties/subjects/process_subject.h"

#include <fmt/format.h>

#include <utility>

#include "properties/forecast/engine_facts.h"
#include "properties/forecast/measured_facts.h"
#include "properties/subjects/answers.h"
#include "properties/subjects/child_process.h"
#include "properties/subjects/run_message.h"

namespace rematch {
namespace {

template <class Set>
std::string names_of_all() {
  std::string names;
  Set::all().for_each([&](auto value) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ",", to_string(value));
  });
  return names;
}

}  // namespace

ProcessSubject::ProcessSubject(std::string command, ProcessLimits limits, std::string name)
    : command_(std::move(command)),
      name_(name.empty() ? command_ : std::move(name)),
      limits_(limits) {
  start();
}

ProcessSubject::~ProcessSubject() {
  // Whoever stops a hunt does not wait for a framework to put its things in order.
  if (process_ && limits_.stopped()) process_->end();
}

std::string_view ProcessSubject::exchange(const std::string& request, double seconds,
                                          std::string_view what) {
  return process_->exchange(request, ChildProcess::Seconds(seconds), what, limits_.stop,
                            ChildProcess::WhenStopped::end);
}

void ProcessSubject::start() {
  known_.reset();
  before_.reset();
  process_.reset();
  try {
    process_ = std::make_unique<ChildProcess>(command_);
    const std::string request =
        fmt::format("{{\"hello\":{{\"protocol\":{},\"features\":[{}],\"observables\":[{}]}}}}",
                    kProtocol, names_of_all<FeatureSet>(), names_of_all<Observables>());
    hello_ = read_hello(exchange(request, limits_.start_seconds, "saying hello"));
  } catch (const std::exception& error) {
    const std::string how = name_ == command_ ? "" : "\nstarted by: " + command_;
    throw SubjectBroken(
        fmt::format("subject \"{}\" cannot be judged: {}{}", name_, error.what(), how));
  }
}

double ProcessSubject::run_seconds() const {
  return hello_.declaration.scope.cases_per_shape > 1 ? limits_.compiling_run_seconds
                                                      : limits_.run_seconds;
}

/// Where large arrays of another case go; nullptr if the subject reads no files.
ArrayFile* ProcessSubject::fresh_files() {
  large_.clear();
  return hello_.files ? &large_ : nullptr;
}

bool ProcessSubject::facts(const Case& c, const Geometry& geometry, const Record& plain,
                           Facts& facts) const {
  engine_facts(c, geometry, true, facts);
  const Declaration& declared = hello_.declaration;
  // Saved tensors decide nothing where segments are differentiated as a whole.
  Observables measured = declared.observes;
  if (declared.whole_segments) measured = measured.without({Observable::saved_tensors});
  measure_facts(c, geometry, plain, measured, facts);
  if (declared.whole_segments) save_in_every_layer(facts);
  return true;
}

bool ProcessSubject::wants_fresh_repeat() const {
  const std::uint64_t every = limits_.cases_per_fresh_repeat;
  // Not at once: the first process has seen nothing yet that could leak.
  return every != 0 && cases_ % every == every / 8;
}

std::string ProcessSubject::export_script(const Case& c, const Geometry& geometry,
                                          std::string_view finding) {
  if (!hello_.declaration.exports) return Subject::export_script(c, geometry, finding);
  known_.reset();
  const std::uint64_t id = next_id_++;
  return read_export_answer(
      exchange(export_message(id, c, geometry, finding, fresh_files()), run_seconds(), "exporting"),
      id, hello_.declaration.name);
}

void ProcessSubject::run(const Case& c, const Geometry& geometry, const RunRequest& request,
                         Record& record) {
  std::string first;
  if (request.fresh) start();
  try {
    return run_once(c, geometry, request, record);
  } catch (const ProcessFailure& error) {
    first = error.what();
  } catch (const std::invalid_argument& error) {
    // The answer breaks the protocol.
    first = error.what();
  }
  if (limits_.stopped()) throw SubjectBroken("interrupted: " + first);
  start();
  try {
    run_once(c, geometry, request, record);
  } catch (const std::exception&) {
    if (limits_.stopped()) throw SubjectBroken("interrupted: " + first);
    start();
    throw std::runtime_error(first + "\n(and again in a fresh process)");
  }
  throw std::runtime_error(first + "\n(not again in a fresh process)");
}

void ProcessSubject::run_once(const Case& c, const Geometry& geometry, const RunRequest& request,
                              Record& record) {
  const bool same_case = known_ == c;
  if (!same_case) {
    if (!request.fresh) ++cases_;
    known_ = c;
    before_.reset();
  }
  const std::uint64_t id = next_id_++;
  const std::string text =
      run_message(id, c, geometry, request, same_case, same_case ? nullptr : fresh_files());
  const std::string_view what = request.checkpointed ? "the checkpointed run" : "the plain run";
  read_run_answer(exchange(text, run_seconds(), what), id, hello_.declaration.name, c, geometry,
                  before_ ? &*before_ : nullptr, record);
  if (!request.checkpointed && record.error) {
    // There is nothing to compare a checkpointed run with.
    const RecordedError error = *record.error;
    throw NotJudged(fmt::format("{}: the plain run ends in {}: {}", hello_.declaration.name,
                                error.kind, error.message));
  }
  before_ = record;
}

}  // namespace rematch
