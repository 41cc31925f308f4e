#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "properties/case/json.h"
#include "properties/cli/commands.h"
#include "properties/output/terminal.h"
#include "properties/record/json.h"
#include "properties/subjects/answers.h"

namespace rematch::cli {
namespace {

using Json = nlohmann::json;

constexpr int kRequests = 3;
constexpr int kAnswers = 4;

/// The two pipes of a process that was started as a subject.
class Pipes {
 public:
  Pipes() : requests_(fdopen(kRequests, "r")), answers_(fdopen(kAnswers, "w")) {
    if (requests_ == nullptr || answers_ == nullptr) {
      throw UsageError(
          "serve: descriptors 3 and 4 are not open; it is started by another rematch: "
          "rematch check --subject \"rematch serve\"");
    }
  }
  ~Pipes() {
    std::fclose(requests_);
    std::fclose(answers_);
    std::free(line_);
  }
  Pipes(const Pipes&) = delete;
  Pipes& operator=(const Pipes&) = delete;

  /// nullopt at the end.
  std::optional<std::string_view> request() {
    const ssize_t length = getline(&line_, &capacity_, requests_);
    if (length <= 0) return std::nullopt;
    return std::string_view(line_, static_cast<std::size_t>(length));
  }
  void answer(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), answers_);
    std::fputc('\n', answers_);
    std::fflush(answers_);
  }

 private:
  std::FILE* requests_;
  std::FILE* answers_;
  char* line_ = nullptr;
  std::size_t capacity_ = 0;
};

template <class Set>
Json names_of(const Set& set) {
  Json names = Json::array();
  set.for_each([&](auto value) { names.push_back(to_string(value)); });
  return names;
}

Json hello_of(const Subject& subject) {
  return {{"hello",
           {{"protocol", kProtocol},
            {"name", subject.name()},
            {"versions", subject.versions()},
            {"implements", names_of(subject.implements())},
            {"observes", names_of(subject.observes())},
            // Arrays are made from the case here, wherever they come.
            {"files", true},
            {"may_vary", subject.may_vary()}}}};
}

/// Runs what requests ask for.
class Server {
 public:
  explicit Server(Subject& subject) : subject_(subject) {}

  std::string answer_to(const Json& run) {
    if (run.contains("case")) {
      case_ = case_from_json(run.at("case").dump());
      geometry_ = validate(case_);
    }
    RunRequest request;
    request.checkpointed = run.at("checkpointed");
    request.layer_values = run.at("layer_values");
    request.detached_layers = run.at("detached_layers").get<std::vector<int>>();
    const std::string id = run.at("id").dump();
    try {
      subject_.run(case_, geometry_, request, record_);
    } catch (const NotJudged& error) {
      return fmt::format("{{\"answer\":{{\"id\":{},\"unsupported\":{}}}}}", id,
                         Json(error.what()).dump());
    }
    return fmt::format("{{\"answer\":{{\"id\":{},\"record\":{}}}}}", id, to_json(record_));
  }

 private:
  Subject& subject_;
  Case case_;
  Geometry geometry_;
  Record record_;
};

int serve(const SubjectChoice& choice) {
  const std::unique_ptr<Subject> subject = choice.make();
  Pipes pipes;
  Server server(*subject);
  while (const std::optional<std::string_view> line = pipes.request()) {
    const Json request = Json::parse(*line);
    pipes.answer(request.contains("hello") ? hello_of(*subject).dump()
                                           : server.answer_to(request.at("run")));
  }
  return kHeld;
}

}  // namespace

void add_serve(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "serve", "Be a subject in another process: check --subject \"rematch serve\"");
  auto choice = std::make_shared<SubjectChoice>();
  choice->add_options(*command);
  command->callback([&chosen, choice] { chosen = [choice] { return serve(*choice); }; });
}

}  // namespace rematch::cli
