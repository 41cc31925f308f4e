#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "scenarios/report/scenario.h"

// In the order of README.md. Each is run() in stories/NAME.cpp.
#define REMATCH_EACH_STORY(STORY) \
  STORY(last_segment)             \
  STORY(memory_trade)             \
  STORY(transformer_block)        \
  STORY(preserve_rng)             \
  STORY(frozen_first_block)       \
  STORY(frozen_embeddings)        \
  STORY(lora)                     \
  STORY(gradients_stay_none)      \
  STORY(batch_norm_twice)         \
  STORY(scale_history)            \
  STORY(kv_cache)                 \
  STORY(moe_routing)              \
  STORY(save_before_fill)         \
  STORY(weights_changed)          \
  STORY(side_output)              \
  STORY(same_tensor_twice)        \
  STORY(tied_weights)             \
  STORY(hooks_once_per_segment)   \
  STORY(uniform_chunks)           \
  STORY(nested_plan)              \
  STORY(one_segment)              \
  STORY(memory_never_freed)

#define REMATCH_DECLARE(name)                         \
  namespace rematch::scenarios::name##_story {        \
    void run(const Options& options, Report& report); \
  }
REMATCH_EACH_STORY(REMATCH_DECLARE)
#undef REMATCH_DECLARE

namespace rematch::scenarios {
namespace {

/// The paragraphs below the heading of this name, each as one line without the marks of a
/// quotation.
std::vector<std::string> section_of(const std::string& name) {
  const std::string head = "\n### " + name + "\n";
  std::size_t at = kReadme.find(head);
  if (at == std::string_view::npos) {
    throw std::logic_error("scenarios/README.md has no section " + name);
  }
  at += head.size();
  std::string_view text = kReadme.substr(at, kReadme.find("\n### ", at) - at);
  std::vector<std::string> paragraphs(1);
  while (!text.empty()) {
    if (text.starts_with("> ")) text.remove_prefix(2);
    const std::string_view line = text.substr(0, text.find('\n'));
    std::string& last = paragraphs.back();
    if (!line.empty()) last += (last.empty() ? "" : " ") + std::string(line);
    if (line.empty() && !last.empty()) paragraphs.emplace_back();
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  if (paragraphs.back().empty()) paragraphs.pop_back();
  if (paragraphs.size() != 3) {
    throw std::logic_error(
        fmt::format("scenarios/README.md: expected a question, an answer and an advice in section "
                    "{}, got {} paragraphs",
                    name, paragraphs.size()));
  }
  return paragraphs;
}

/// The text before `mark`; both are taken away.
std::string cut(std::string& text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string::npos) {
    throw std::logic_error("scenarios/README.md: no \"" + std::string(mark) + "\" in: " + text);
  }
  std::string before = text.substr(0, at);
  text.erase(0, at + mark.size());
  return before;
}

Scenario read(const std::string& name, void (*run)(const Options&, Report&)) {
  std::vector<std::string> parts = section_of(name);
  Scenario s;
  s.name = name;
  s.question = cut(parts[0], " *(");
  s.source = cut(parts[0], ")*");
  s.answer = parts[1];
  cut(parts[2], "**In PyTorch.** ");
  s.advice = cut(parts[2], " Recorded: ");
  // `PROBE.FIELD: VALUE`; `...
  while (parts[2] != ".") {
    cut(parts[2], "`");
    std::string value = cut(parts[2], "`");
    const std::string place = cut(value, ": ");
    const std::size_t dot = place.rfind('.');
    s.recorded.push_back({place.substr(0, dot), place.substr(dot + 1), value});
  }
  s.run = run;
  return s;
}

}  // namespace

std::span<const Scenario> scenarios() {
#define REMATCH_READ(name) read(#name, name##_story::run),
  static const std::vector<Scenario> kScenarios{REMATCH_EACH_STORY(REMATCH_READ)};
#undef REMATCH_READ
  return kScenarios;
}

const Scenario* find_scenario(std::string_view name) {
  const auto all = scenarios();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Scenario& scenario) { return scenario.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::string Scenario::probes() const {
  std::string names;
  std::string_view last;
  for (const Recorded& r : recorded) {
    if (r.probe == last) continue;
    last = r.probe;
    names += (names.empty() ? "" : ", ") + r.probe;
  }
  return names;
}

}  // namespace rematch::scenarios
