#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/features.h"
#include "properties/case/geometry.h"
#include "properties/laws/law.h"

namespace rematch {

/// What an implementation does not promise, or is known to get wrong, in cases of a certain kind.
struct KnownDivergence {
  std::string id;  ///< "batch-norm-twice".
  /// The laws that it violates.
  std::vector<std::string> laws;
  /// Features that the case must have, and those that it must not have.
  FeatureSet when;
  FeatureSet unless;
  /// If not empty: the case must have one of these custom layers, by their names.
  std::vector<std::string> layers = {};
  /// If not empty: the injected failure must be one of these.
  std::vector<FailureKind> inject;
  /// If not empty: what came (Violation::got) must contain one of these.
  std::vector<std::string> got;
  /// The values differ by no more than this (Violation::distance); absent: by anything.
  std::optional<double> at_most;
  std::string why;   ///< A sentence.
  std::string link;  ///< Where it is documented or reported; may be empty.
  /// false: a limit that the implementation states, or that follows from what it states.
  bool promised = true;
};

/// All of them for one implementation, from a JSON file (properties/subjects/profiles/).
class Profile {
 public:
  Profile() = default;
  explicit Profile(std::vector<KnownDivergence> entries, std::uint64_t text_hash = 0)
      : entries_(std::move(entries)), text_hash_(text_hash) {}

  const std::vector<KnownDivergence>& entries() const { return entries_; }
  /// Of its file, and of those that it extends; 0 if it is from none.
  std::uint64_t text_hash() const { return text_hash_; }
  /// The first entry, from number `from` on, that explains a violation by a case of these features.
  std::optional<std::size_t> explains(const Violation& violation, const Case& c,
                                      const FeatureSet& features, std::size_t from = 0) const;
  /// The first violation that no entry explains; nullptr when there is none.
  const Violation* first_new(const Verdicts& verdicts, const Case& c,
                             const FeatureSet& features) const;

 private:
  std::vector<KnownDivergence> entries_;
  std::uint64_t text_hash_ = 0;
};

/// A file may extend another one of its folder: `"extends": "pytorch.json"`.
/// Throws std::invalid_argument with the file's name, the place and what was expected there.
Profile load_profile(const std::filesystem::path& file);

}  // namespace rematch
