#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/case.h"
#include "properties/forecast/forecast.h"
#include "properties/subjects/record.h"
#include "properties/subjects/subject.h"

namespace rematch {

struct LayerAgreement;
struct SlopeSamples;

/// What a law may look at. `plain` is the reference run (plain, with forecast.frozen_layers
/// detached); `checkpointed` the run under the plan.
struct Evidence {
  const Case& c;
  const Geometry& geometry;
  const Forecast& forecast;
  const Record& plain;
  const Record& checkpointed;
  /// Losses around the case (properties/laws/slope.h); nullptr: they were not measured.
  const SlopeSamples* slope = nullptr;
  /// The checkpointed run once more; nullptr: it was run once.
  const Record* repeat = nullptr;
  /// Each layer on the host and on the subject's device (properties/subjects/layer_agreement.h);
  /// nullptr: the subject runs on the host.
  const std::vector<LayerAgreement>* layers = nullptr;
};

/// What a law reads beside the two records; it is passed over for cases that have none.
enum class Needs : std::uint8_t { nothing, events, slope, repeat, layers };

struct Breach {
  std::string_view law;
  std::string place;  ///< "step 0, parameter 2 (layer 3 linear weight), element 17".
  std::string expected;
  std::string got;
};

/// A predicate over two records and a forecast. Laws are pure functions and know nothing of how
/// the case came about.
struct Law {
  std::string_view name;       ///< "parameter-gradients"
  std::string_view statement;  ///< One sentence in the present tense.
  std::optional<Breach> (*check)(const Evidence&);
  Needs needs = Needs::nothing;
};

/// More laws than there will be.
inline constexpr std::size_t kMaxLaws = 64;

/// All laws, in the order in which they are judged (causes before consequences).
std::span<const Law> laws();

/// nullptr when there is none of that name.
const Law* find_law(std::string_view name);

/// The plain run of a case asks for more memory than a run may use: nothing was judged.
class CaseTooLarge : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws CaseTooLarge when the record ended for want of memory.
void require_fitting(const Record& plain);

struct Verdict {
  std::optional<Breach> breach;
  /// By position in laws(): the laws that were checked, up to the first breach. A law that has
  /// nothing to say of a case is not.
  std::bitset<kMaxLaws> checked;
  bool held() const { return !breach; }
};

/// Buffers that a worker reuses from case to case.
struct Bench {
  Record plain;
  Record checkpointed;
  /// Of runs that only a law asks for.
  Record scratch;
};

/// Runs the reference and the checkpointed run on `subject` and judges the records: every law, or
/// the one given. The first breach in the order of laws() is the verdict. Throws
/// CaseTooLarge.
Verdict judge(const Case& c, Subject& subject, Bench& bench, const Law* only = nullptr);

}  // namespace rematch
