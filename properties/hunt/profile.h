#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/features.h"
#include "properties/case/geometry.h"
#include "properties/forecast/reach.h"
#include "properties/laws/law.h"
#include "properties/record/declaration.h"

namespace rematch {

/// A law that an implementation does not promise to keep, or is known to violate, in certain cases.
struct KnownDivergence {
  /// Name, such as "batch-norm-twice".
  std::string id;
  /// Laws that it violates beside those that follow from `wrong`.
  std::vector<std::string> laws;
  /// Features that the case must have.
  FeatureSet when;
  /// Features that the case must not have.
  FeatureSet unless = {};
  /// Features, of which the case must have one. Empty: any case.
  FeatureSet any = {};
  /// Layers, of which the case must have one: kinds ("rrelu"), custom layers or their class
  /// ("nn.GRU" for "nn.GRU.3", "nn.Conv*" for all that begin so), or what they do: "stateful",
  /// "reads state", "draws", "draws elsewhere", "draws behind a kept draw", "casts", "shares a
  /// cast". Empty: any case.
  std::vector<std::string> at = {};
  /// Where one of these layers must lie: lists of words, all of which are true of a segment around
  /// it: "checkpointed", "reentrant", "non_reentrant", "early_stop", "selective", "fresh",
  /// "nested", "dictionary", "keywords", "emptied", "dictionary_outputs". Empty: anywhere.
  std::vector<std::string> in = {};
  /// What is wrong at these layers: "recomputed", "forward", "gradient", "state", "stream",
  /// "weight", "detached", "runs", "zeros", "held", "unwritten", "failure", "compiled"
  /// (properties/forecast/reach.h). All that lies downstream is explained, whatever the law.
  std::vector<Wrong> wrong = {};
  /// Injected failures, of which the case must have one. Empty: any case.
  std::vector<FailureKind> inject = {};
  /// Options, for each of which the case must have one of these values. Empty: any case.
  std::map<std::string, std::vector<std::string>> options = {};
  /// Texts by name, one of which the version of that name that the subject declares must contain.
  /// Empty: any subject.
  std::map<std::string, std::vector<std::string>> versions = {};
  /// Texts, of which the line "got" of a violation of `laws` must contain one, or, where the entry
  /// has none, of any violation. Empty: any text. A promise in parentheses, "(second_derivative)",
  /// is explained whatever the case has.
  std::vector<std::string> got = {};
  /// Largest relative difference of values that it explains. Absent: any.
  std::optional<double> at_most = std::nullopt;
  /// Segments may drop nothing: of what is held or saved at most (the laws saved-at-most,
  /// held-at-most and held-in-backward) it explains no more than the plain run has, with the inputs
  /// of segments and what policies may keep.
  bool drops_nothing = false;
  /// Faults of the catalogue (`rematch faults`) that do the same. The entry explains no other
  /// buffers than the reference engine with one of them has in the same case, where it tells.
  std::vector<std::string> faults = {};
  /// Reason, one sentence.
  std::string why;
  /// What trackers know of a bug, or who says so of a limit: an address, maybe behind a word
  /// ("known", "near"), or "by design", "documented", "no thread found in 2026-11". Empty: not
  /// reported.
  std::string reported = {};
  /// Of a bug that is silent: the script that shows it in the framework alone, as
  /// "mlx/closed_over".
  std::string script = {};
  /// It is wrong without a checkpoint, too.
  bool plain_too = false;
  /// A gradient is wrong, though the entry's laws, such as promises, do not say so.
  bool moves_gradients = false;
  /// First version in which it was measured. Empty: not dated.
  std::string since = {};
  /// false: a documented limit, which the implementation states or which follows from what it
  /// states.
  bool promised = true;
  /// A case that shows it where hunts seldom do: `rematch conform` judges it then, and `rematch
  /// replay` once it stands in a file of its own.
  std::string example = {};

  /// "reported: ADDRESS, since 2.9" or "not reported" of a bug; of a limit what says so, if
  /// anything.
  std::string report() const;
};

/// By layer of a case, whether it is one of those that KnownDivergence::at names, and lies where
/// KnownDivergence::in says. `geometry` is validate(c).
std::vector<bool> sites_of(const std::vector<std::string>& at, const std::vector<std::string>& in,
                           const Case& c, const Geometry& geometry);
/// Whether KnownDivergence::in may hold the text.
bool is_segment_text(std::string_view text);

/// All of them for one implementation, from a JSON file (profile.json of a framework's folder).
class Profile {
 public:
  Profile() = default;
  explicit Profile(std::vector<KnownDivergence> entries) : entries_(std::move(entries)) {}

  const std::vector<KnownDivergence>& entries() const { return entries_; }
  /// The same entries for a subject of these versions: others than it has explain nothing.
  Profile on(Versions versions) const;
  /// The same entries for a subject that may be of any version.
  Profile everywhere() const;
  /// Whether the entry is about the subject's versions.
  bool holds(std::size_t entry) const;
  /// The first entry, from number `from` on, that explains a violation by a case of these features.
  /// Where several arrays differ, it explains the first, and other entries may explain the others.
  std::optional<std::size_t> explains(const Violation& violation, const Case& c,
                                      const FeatureSet& features, std::size_t from = 0) const;
  /// The first violation that no entry explains; nullptr when there is none.
  const Violation* first_unexplained(const Verdicts& verdicts, const Case& c,
                                     const FeatureSet& features) const;

 private:
  std::optional<std::size_t> explains_at(const Site& site, const Violation& violation,
                                         const Case& c, const FeatureSet& features,
                                         std::size_t from) const;

  std::vector<KnownDivergence> entries_;
  Versions versions_;
  bool is_of_any_version_ = false;
};

/// A file may extend another one of its folder: `"extends": "pytorch.json"`.
/// Throws std::invalid_argument with the file's name, the place and what was expected there.
Profile load_profile(const std::filesystem::path& file);

}  // namespace rematch
