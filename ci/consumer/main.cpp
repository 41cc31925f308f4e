// What a user writes to have an implementation of their own judged: a Subject, and one call.
#include <cstdio>
#include <memory>

#include "properties/laws/law.h"
#include "properties/subjects/registry.h"
#include "properties/subjects/subject.h"

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
  c.layers[0].kind = rematch::LayerKind::linear;
  c.layers[0].features = 5;
  c.layers[1].kind = rematch::LayerKind::dropout;
  c.layers[1].p = 0.5;
  c.layers[2].kind = rematch::LayerKind::linear;
  c.layers[2].features = 2;
  c.plan.sequential = rematch::SequentialSpec{.segments = 2, .last_stored = true, .choice = {}};
  MySubject subject;
  rematch::Bench bench;
  const rematch::Verdict verdict = rematch::judge(c, subject, bench);
  if (!verdict.held()) {
    std::printf("%s: %s\n", std::string(verdict.breach->law).c_str(),
                verdict.breach->place.c_str());
    return 1;
  }
  std::printf("%d laws held\n", static_cast<int>(verdict.checked.count()));
  return 0;
}
