#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/report/report.h"

namespace rematch::scenarios {

struct Options {
  /// May be empty; true: wind up, keep what there is.
  std::function<bool()> stop;
  bool stopped() const { return stop && stop(); }
};

/// A field of golden/semantics/semantics.json, and what PyTorch did, as JSON.
struct Recorded {
  std::string probe;
  std::string field;
  std::string value;
};

/// A question that a user asked, and the program that answers it. All but the program is a section
/// of README.md.
struct Scenario {
  /// Names the program, the story's file and its pictures.
  std::string name;
  /// In the asker's words, or close to them.
  std::string question;
  /// The thread or document that it comes from.
  std::string source;
  /// Two or three sentences: the answer in short.
  std::string answer;
  /// What to do in PyTorch, in Markdown, and the recorded facts that support it.
  std::string advice;
  std::vector<Recorded> recorded;
  /// Runs the story. What it writes into the report is the same on every machine, apart from
  /// Report::measured(). May throw what the engine throws.
  void (*run)(const Options&, Report&) = nullptr;

  /// The recorded probes in their order, each once: "RE4.frozen_input, RE4.non_reentrant".
  std::string probes() const;
};

/// README.md of this folder, as it was when the program was built.
extern const std::string_view kReadme;

/// Every story, in the order of README.md.
std::span<const Scenario> scenarios();

/// nullptr when there is none of that name.
const Scenario* find_scenario(std::string_view name);

}  // namespace rematch::scenarios
