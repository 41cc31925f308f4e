#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "properties/layers/feature.h"

namespace rematch {

/// How much a value that is not the usual one adds to the complexity of a case.
enum class Cost : std::uint8_t { none, one, two, amount, size };

/// In JSON: left out when it has its usual value, always written, or required as well.
enum class Presence : std::uint8_t { unusual, written, required };

/// One field of a struct that is part of a case. Reading, writing, describing, measuring and
/// simplifying cases walk the lists of fields, so that a field is stated once.
template <class S, class V>
struct Field {
  using Struct = S;
  using Value = V;
  std::string_view name;
  V S::*member;
  Cost cost = Cost::one;
  /// Phrase for an unusual value in a description; "{}" stands for the value, "{s}" for the s of
  /// the plural. Empty: nothing.
  std::string_view phrase = {};
  /// The description says it even of the usual value.
  bool always_said = false;
  Presence presence = Presence::unusual;
  /// Bounds of a number, checked by validate() where low < high.
  int low = 0;
  int high = 0;
  /// Its name in files that were written before.
  std::string_view old_name = {};
  /// Cases of one shape may differ in it: what is compiled for a model knows nothing of it.
  bool varies = false;
  /// The feature of cases in which the value is not the usual one.
  std::optional<Feature> feature = std::nullopt;

  constexpr Field varying() const {
    Field f = *this;
    f.varies = true;
    return f;
  }
  constexpr Field showing(Feature shown) const {
    Field f = *this;
    f.feature = shown;
    return f;
  }
};

/// A part whose fields stand among those of the struct that it belongs to.
template <class S, class V>
struct Part {
  using Struct = S;
  using Value = V;
  V S::*member;
};

/// The fields of S, in the order of its JSON: specialised beside each such struct with a tuple
/// `list` of Field and Part.
template <class S>
struct FieldsOf;

template <class T>
inline constexpr bool is_part = false;
template <class S, class V>
inline constexpr bool is_part<Part<S, V>> = true;

/// Calls visit(field, value, usual) for each field of `s`, those of its parts included; `usual` is
/// an S that says what is usual. S may be const.
template <class S, class Visit>
void for_each_field(S& s, const std::remove_const_t<S>& usual, Visit&& visit) {
  std::apply(
      [&](const auto&... entries) {
        const auto one = [&](const auto& entry) {
          if constexpr (is_part<std::remove_cvref_t<decltype(entry)>>) {
            for_each_field(s.*entry.member, usual.*entry.member, visit);
          } else {
            visit(entry, s.*entry.member, usual.*entry.member);
          }
        };
        (one(entries), ...);
      },
      FieldsOf<std::remove_const_t<S>>::list);
}

template <class S, class Visit>
void for_each_field(S& s, Visit&& visit) {
  for_each_field(s, std::remove_const_t<S>{}, std::forward<Visit>(visit));
}

}  // namespace rematch
