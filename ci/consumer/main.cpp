// What a user writes to have an implementation of their own judged: a Subject, and one call.
#include <cstdio>
#include <memory>

#include "properties/hunt/gather.h"
#include "properties/hunt/registry.h"
#include "properties/record/subject.h"

namespace {

class MySubject final : public rematch::Subject {
 public:
  std::string_view name() const override { return "mine"; }
  void run(const rematch::Case& c, const rematch::Geometry& geometry,
           const rematch::RunRequest& request, rematch::Record& record) override {
    engine_->run(c, geometry, request, record);
  }

 private:
  std::unique_ptr<rematch::Subject> engine_ = rematch::make_subject("engine");
};

}  // namespace

int main() {
  rematch::Case c;
  c.input = {4, 3};
  c.layers.resize(3);
  c.layers[0].kind = rematch::layer_kind("linear");
  c.layers[0].features = 5;
  c.layers[1].kind = rematch::layer_kind("dropout");
  c.layers[1].p = 0.5;
  c.layers[2].kind = rematch::layer_kind("linear");
  c.layers[2].features = 2;
  c.plan.sequential = rematch::SequentialSpec{.segments = 2, .last_stored = true, .choice = {}};
  MySubject subject;
  rematch::Workspace workspace;
  const rematch::Verdicts verdicts = rematch::judge(c, subject, workspace);
  if (!verdicts.kept()) {
    std::printf("%s: %s\n", std::string(verdicts.first()->law).c_str(),
                verdicts.first()->place.c_str());
    return 1;
  }
  std::printf("%d laws kept\n", static_cast<int>(verdicts.count(rematch::Verdict::kept)));
  return 0;
}
