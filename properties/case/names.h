#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "properties/case/case.h"

namespace rematch {

/// The values of an enum that cases may have, by name.
template <class Enum>
struct NamesOf;

#define REMATCH_NAMES(Enum, ...)                                      \
  template <>                                                         \
  struct NamesOf<Enum> {                                              \
    using enum Enum;                                                  \
    using Entry = std::pair<Enum, std::string_view>;                  \
    static constexpr auto list = std::to_array<Entry>({__VA_ARGS__}); \
  }

REMATCH_NAMES(Variant, {reentrant, "reentrant"}, {non_reentrant, "non_reentrant"});
REMATCH_NAMES(CheckKind, {none, "none"}, {metadata, "metadata"}, {values, "values"});
REMATCH_NAMES(Arguments, {tensors, "tensors"}, {dictionary, "dictionary"}, {keywords, "keywords"},
              {emptied, "emptied"});
REMATCH_NAMES(LossKind, {mse, "mse"}, {cross_entropy, "cross_entropy"});
REMATCH_NAMES(OptimizerKind, {sgd, "sgd"}, {adam, "adam"});
REMATCH_NAMES(AutocastSpan, {off, "off"}, {forward, "forward"}, {both, "both"});
REMATCH_NAMES(DataKind, {normal, "normal"}, {small_integers, "small_integers"});
REMATCH_NAMES(DType, {float32, "float32"}, {float64, "float64"});
REMATCH_NAMES(FailureKind, {none, "none"}, {input_changed, "input_changed"},
              {weight_changed, "weight_changed"}, {op_exchanged, "op_exchanged"},
              {forward_throws, "forward_throws"}, {recomputation_throws, "recomputation_throws"},
              {graph_dropped, "graph_dropped"}, {shape_changed, "shape_changed"},
              {value_changed, "value_changed"},
              // Its name in files that were written before.
              {recomputation_throws, "replay_throws"});

#undef REMATCH_NAMES

template <class Enum>
std::string_view name_of(Enum value) {
  for (const auto& [entry, name] : NamesOf<Enum>::list) {
    if (entry == value) return name;
  }
  return "?";
}

}  // namespace rematch
