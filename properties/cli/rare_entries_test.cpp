#include "properties/cli/rare_entries.h"

#include <catch2/catch_test_macros.hpp>

#include "properties/cli/check_arguments.h"
#include "properties/testing/shell.h"

namespace rematch::cli {
namespace {

using Names = std::vector<std::string>;

const char* const kCase =
    R"({"format": 1, "seed": 5, "input": [2, 1], "layers": [{"kind": "batch_norm"}],
  "plan": {"segments": [{"begin": 0, "end": 1, "variant": "non_reentrant"}]}})";

/// The unseen entries of the profile once their own cases were judged.
Names left(const std::string& profile, const std::string& subject) {
  CheckArguments a;
  a.subject.name = subject;
  a.subject.profile = profile;
  a.seed = "1";
  Names unseen = {"rare", "twice"};
  const Names shown = take_shown(hunt_options(a), unseen);
  CHECK(shown.size() + unseen.size() == 2);
  return unseen;
}

}  // namespace

TEST_CASE("an entry that no hunt showed is shown by its example, while it is true") {
  const testing::ScratchFolder folder;
  const std::string entry =
      R"("laws": ["buffers-after-step"], "when": ["stateful_layer"], "why": "So."})";
  const auto profile_with = [&](const std::string& of_twice) {
    return folder.write("known.json", R"({"format": 1, "known": [{"id": "twice", )" + of_twice +
                                          entry + R"(, {"id": "rare", "unless": ["eval_mode"], )" +
                                          R"("example": )" + kCase + ", " + entry + "]}");
  };
  // The first entry explains whatever the second does.
  CHECK(left(profile_with(""), "engine:S1") == Names{"rare", "twice"});
  const std::string profile = profile_with(R"("example": )" + std::string(kCase) + ", ");
  CHECK(left(profile, "engine:S1") == Names{"rare"});
  CHECK(left(profile, "engine") == Names{"rare", "twice"});
  CHECK(left(profile_with(R"("script": "pytorch/any", )"), "engine") == Names{"rare"});
}

}  // namespace rematch::cli
