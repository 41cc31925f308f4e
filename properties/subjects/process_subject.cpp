#include "properties/subjects/process_subject.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "properties/case/json_fields.h"
#include "properties/forecast/engine_facts.h"
#include "properties/forecast/measured_facts.h"
#include "properties/record/json_reader.h"
#include "properties/subjects/child_process.h"
#include "properties/subjects/run_message.h"

namespace rematch {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kWhat = "subject";
constexpr int kProtocol = 1;
constexpr int kMostNesting = 10;
constexpr std::size_t kMostBytes = std::size_t{1} << 28;
constexpr std::size_t kLongestName = 200;
constexpr std::size_t kMostLayers = 1024;
constexpr std::size_t kLongestScript = std::size_t{1} << 20;
constexpr std::size_t kLongestText = std::size_t{1} << 16;

template <class Set>
std::string names_of_all() {
  std::string names;
  Set::all().for_each([&](auto value) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ",", to_string(value));
  });
  return names;
}

template <class Set, class Named>
Set read_set(JsonFields& fields, const char* name, Named named) {
  const Json& list = fields.need(name);
  need_array(kWhat, list, fields.path(name), 4096);
  Set set;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto value =
        list[i].is_string() ? named(list[i].template get_ref<const std::string&>()) : std::nullopt;
    if (!value) {
      fields.fail(indexed(fields.path(name), i), "one of the names in the request",
                  show_json(list[i]));
    }
    set.insert(*value);
  }
  return set;
}

std::vector<const CustomLayer*> read_layers(JsonFields& fields) {
  std::vector<const CustomLayer*> layers;
  const Json* list = fields.find("layers");
  if (list == nullptr) return layers;
  need_array(kWhat, *list, fields.path("layers"), kMostLayers);
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& text = (*list)[i];
    const std::string path = indexed(fields.path("layers"), i);
    if (!text.is_string()) fields.fail(path, "the declaration of a layer", show_json(text));
    layers.push_back(declared(text.get_ref<const std::string&>()));
  }
  return layers;
}

/// The message that is the object's one field.
const Json& message(const Json& answer, const char* name) {
  if (!answer.is_object() || answer.size() != 1 || !answer.contains(name)) {
    json_fail(kWhat, "", fmt::format("{{\"{}\": {{...}}}}", name), show_json(answer));
  }
  return answer.at(name);
}

/// Checks the id, and throws what the subject says instead of an answer.
void check_answer(JsonFields& answer, std::uint64_t id, const std::string& name) {
  const Json& echoed = answer.need("id");
  if (echoed != id) answer.fail("answer.id", std::to_string(id), show_json(echoed));
  std::string unsupported;
  std::string broken;
  answer.read("unsupported", unsupported, kLongestText);
  answer.read("error", broken, kLongestText);
  if (!broken.empty()) {
    throw SubjectBroken(fmt::format("subject \"{}\" says that it is broken: {}", name, broken));
  }
  if (!unsupported.empty()) throw NotJudged(fmt::format("{}: {}", name, unsupported));
}

}  // namespace

ProcessSubject::ProcessSubject(std::string command, ProcessLimits limits)
    : command_(std::move(command)), limits_(limits) {
  start();
}

ProcessSubject::~ProcessSubject() = default;

void ProcessSubject::start() {
  known_.reset();
  before_.reset();
  process_.reset();
  try {
    process_ = std::make_unique<ChildProcess>(command_);
    const std::string request =
        fmt::format("{{\"hello\":{{\"protocol\":{},\"features\":[{}],\"observables\":[{}]}}}}",
                    kProtocol, names_of_all<FeatureSet>(), names_of_all<Observables>());
    const Json answer = parse_json(
        kWhat,
        process_->exchange(request, ChildProcess::Seconds(limits_.start_seconds), "saying hello"),
        kMostBytes, kMostNesting);
    JsonFields hello(kWhat, message(answer, "hello"), "hello");
    int protocol = 0;
    hello.read("protocol", protocol);
    if (protocol != kProtocol) {
      hello.fail("hello.protocol", std::to_string(kProtocol), std::to_string(protocol));
    }
    hello.read("name", name_, kLongestName);
    if (name_.empty()) hello.fail("hello.name", "a name", "none");
    (void)hello.find("versions");
    implements_ = read_set<FeatureSet>(hello, "implements", feature_named);
    observes_ = read_set<Observables>(hello, "observes", observable_named)
                    .without({Observable::displacement, Observable::host_agreement});
    custom_layers_ = read_layers(hello);
    hello.read("may_vary", may_vary_);
    hello.read("rounds", rounds_, kLongestName);
    if (rounds_ != "equal" && !rounds_differently()) {
      hello.fail("hello.rounds", R"("equal" or "differently")", show_json(rounds_));
    }
    // Their hashes tell numbers of other bits apart, and nothing else.
    if (rounds_differently()) observes_.erase(Observable::recomputed_values);
    hello.read("exports", exports_);
    hello.finish();
  } catch (const std::exception& error) {
    throw SubjectBroken(fmt::format("subject \"{}\" cannot be judged: {}", command_, error.what()));
  }
}

bool ProcessSubject::facts(const Case& c, const Geometry& geometry, const Record& plain,
                           Facts& facts) const {
  engine_facts(c, geometry, true, facts);
  measure_facts(c, geometry, plain, observes_, facts);
  return true;
}

bool ProcessSubject::wants_fresh_repeat() const {
  const std::uint64_t every = limits_.cases_per_fresh_repeat;
  // Not at once: the first process has seen nothing yet that could leak.
  return every != 0 && cases_ % every == every / 8;
}

std::string ProcessSubject::export_script(const Case& c, const Geometry& geometry,
                                          std::string_view finding) {
  if (!exports_) return Subject::export_script(c, geometry, finding);
  known_.reset();
  const std::uint64_t id = next_id_++;
  const Json json =
      parse_json(kWhat,
                 process_->exchange(export_message(id, c, geometry, finding),
                                    ChildProcess::Seconds(limits_.run_seconds), "exporting"),
                 kMostBytes, kMostNesting);
  JsonFields answer(kWhat, message(json, "answer"), "answer");
  check_answer(answer, id, name_);
  std::string script;
  answer.read("script", script, kLongestScript);
  if (script.empty()) answer.fail("answer.script", "a script", "none");
  answer.finish();
  return script;
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
  start();
  try {
    run_once(c, geometry, request, record);
  } catch (const std::exception&) {
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
  const std::string text = run_message(id, c, geometry, request, same_case);
  const std::string_view what = request.checkpointed ? "the checkpointed run" : "the plain run";
  const Json json =
      parse_json(kWhat, process_->exchange(text, ChildProcess::Seconds(limits_.run_seconds), what),
                 kMostBytes, kMostNesting);
  JsonFields answer(kWhat, message(json, "answer"), "answer");
  check_answer(answer, id, name_);
  read_record(answer.need("record"), "answer.record", before_ ? &*before_ : nullptr, record);
  answer.finish();
  if (!request.checkpointed && record.error) {
    // There is nothing to compare a checkpointed run with.
    const RecordedError error = *record.error;
    throw NotJudged(
        fmt::format("{}: the plain run ends in {}: {}", name_, error.kind, error.message));
  }
  before_ = record;
}

}  // namespace rematch
