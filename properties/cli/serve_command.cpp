#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "properties/case/json.h"
#include "properties/case/options_json.h"
#include "properties/cli/commands.h"
#include "properties/cli/pipes.h"
#include "properties/output/terminal.h"
#include "properties/record/json.h"
#include "properties/subjects/answers.h"

namespace rematch::cli {
namespace {

template <class Set>
nlohmann::json names_of(const Set& set) {
  nlohmann::json names = nlohmann::json::array();
  set.for_each([&](auto value) { names.push_back(to_string(value)); });
  return names;
}

nlohmann::json hello_of(const Declaration& declared) {
  nlohmann::json hello{{"protocol", kProtocol},
                       {"name", declared.name},
                       {"versions", declared.versions},
                       {"implements", names_of(declared.scope.features)},
                       {"observes", names_of(declared.observes)},
                       // Arrays are made from the case here, wherever they come.
                       {"files", true},
                       {"may_vary", declared.may_vary}};
  write_options(declared.scope.options, hello);
  return {{"hello", hello}};
}

/// Runs what requests ask for.
class Server {
 public:
  explicit Server(Subject& subject) : subject_(subject) {}

  std::string answer_to(const nlohmann::json& run) {
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
                         nlohmann::json(error.what()).dump());
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
  Pipes pipes("serve", "check --subject \"rematch serve\"");
  Server server(*subject);
  while (const std::optional<std::string_view> line = pipes.request()) {
    const nlohmann::json request = nlohmann::json::parse(*line);
    pipes.answer(request.contains("hello") ? hello_of(subject->declares()).dump()
                                           : server.answer_to(request.at("run")));
  }
  return kHeld;
}

void declare_serve(Command& command) {
  auto choice = std::make_shared<SubjectChoice>();
  auto schema = std::make_shared<bool>(false);
  choice->add_options(command);
  command.add_flag("--schema", *schema, "Print the JSON schema of the protocol, and answer nobody");
  command.runs([choice, schema] {
    if (!*schema) return serve(*choice);
    print_out(protocol_schema());
    return static_cast<int>(kHeld);
  });
}

}  // namespace

const CommandEntry serve_command{
    .name = "serve",
    .summary = "Answer as a subject in another process, by the protocol on descriptors 3 and 4",
    .examples =
        "  rematch check --subject \"rematch serve\" --cases 300\n"
        "  rematch serve --schema > protocol.schema.json",
    .declare = declare_serve,
};

}  // namespace rematch::cli
