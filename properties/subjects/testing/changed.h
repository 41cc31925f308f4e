#pragma once

#include <functional>
#include <utility>

#include "properties/subjects/engine_subject.h"

namespace rematch::testing {

/// The engine with a declaration of its own, and with what `change` does to the record of each run.
class Changed : public Subject {
 public:
  using Change = std::function<void(const Case&, const RunRequest&, Record&)>;
  Changed(Declaration declared, Change change)
      : declared_(std::move(declared)), change_(std::move(change)) {}
  const Declaration& declares() const override { return declared_; }
  void run(const Case& c, const Geometry& geometry, const RunRequest& request,
           Record& record) override {
    engine_.run(c, geometry, request, record);
    change_(c, request, record);
  }

 private:
  Declaration declared_;
  Change change_;
  EngineSubject engine_;
};

}  // namespace rematch::testing
