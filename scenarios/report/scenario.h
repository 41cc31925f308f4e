#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "scenarios/report/report.h"

namespace rematch::scenarios {

struct Options {
  /// May be empty; true: wind up, keep what there is.
  std::function<bool()> stop;
  bool stopped() const { return stop && stop(); }
};

/// A field of golden/semantics/semantics.json, and what PyTorch did, as JSON.
struct Recorded {
  std::string_view probe;
  std::string_view field;
  std::string_view value;
};

/// Advice for PyTorch, in Markdown, and the recorded facts that support it. Stories are constants,
/// there before any other object: hence no vector.
struct Advice {
  std::string_view text;
  Recorded recorded[8] = {};

  std::span<const Recorded> seen() const;
  /// The probes in their order, each once: "RE4.frozen_input, RE4.non_reentrant".
  std::string probes() const;
};

/// A question that a user asked, and the program that answers it.
struct Scenario {
  /// Names the program, the story's file and its pictures.
  std::string_view name;
  /// In the asker's words, or close to them.
  std::string_view question;
  /// The thread or document that it comes from.
  std::string_view source;
  /// Two or three sentences: the answer in short.
  std::string_view answer;
  /// Runs the story. What it writes into the report is the same on every machine, apart from
  /// Report::measured(). May throw what the engine throws.
  void (*run)(const Options&, Report&);
  Advice in_pytorch = {};
};

/// Begins the definition of a story outside of namespaces: REMATCH_STORY(name){"name", ...};
#define REMATCH_STORY(name)      \
  namespace rematch::scenarios { \
  extern const Scenario name;    \
  }                              \
  const rematch::scenarios::Scenario rematch::scenarios::name

/// Every story, in the order of README.md.
std::span<const Scenario> scenarios();

/// nullptr when there is none of that name.
const Scenario* find_scenario(std::string_view name);

}  // namespace rematch::scenarios
