#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <tuple>
#include <vector>

#include "properties/layers/field.h"
#include "properties/layers/kinds.h"

namespace rematch {

struct CustomLayer;

/// One value of the model: output `output` of layer `layer`; the outputs of layer -1 are the model
/// inputs.
struct ValueRef {
  int layer = -1;
  int output = 0;
  friend bool operator==(const ValueRef&, const ValueRef&) = default;
};

/// One layer of a sequential model. Its first operand is always output 0 of the layer before it
/// (the model input for layer 0). Each kind's file defines which of the other fields it has.
struct LayerSpec {
  LayerKind kind{};
  /// Width of the output, or of its first part; number of channels.
  std::int64_t features = 0;
  /// Tokens are integers below it.
  std::int64_t vocabulary = 0;
  /// Side of the square window.
  std::int64_t kernel = 0;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  /// Number of groups that share the channels.
  std::int64_t groups = 1;
  /// Number of heads: of the queries, or of the operand that rotary positions turn.
  std::int64_t heads = 1;
  /// Number of experts.
  std::int64_t experts = 0;
  /// Number of experts that a row goes to.
  std::int64_t top = 1;
  /// Number of rows that the layer keeps from earlier forwards.
  std::int64_t kept = 0;
  /// Probability, or standard deviation, or factor.
  double p = 0;
  bool bias = true;
  bool in_place = false;
  /// Query i sees keys 0 to i + keys - queries.
  bool causal = false;
  /// Saves less, and computes the rest again in the backward.
  bool fused = false;
  /// Rounds to float8, as an FP8 recipe does before a product.
  bool fp8 = false;
  /// Parameters do not require grad.
  bool frozen = false;
  /// Shares the parameters of this earlier layer, which has the same kind and shapes or lends its
  /// weight to this kind; -1: has its own.
  int tied_to = -1;
  /// Random stream that the layer draws from, 0 to 255.
  int stream = 0;
  /// Name of a layer that the subject declared, for the kind custom.
  const CustomLayer* layer = nullptr;
  /// Runs in eval mode whatever the model does, like a norm whose statistics are frozen.
  bool eval = false;
  /// Operands after the first: any earlier values, the first operand included.
  std::vector<ValueRef> from;
  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

template <>
struct FieldsOf<LayerSpec> {
  using L = LayerSpec;
  static constexpr std::tuple list{
      Field<L, std::int64_t>{"features", &L::features, Cost::size, "{}"},
      Field<L, std::int64_t>{"vocabulary", &L::vocabulary, Cost::size, "of a vocabulary of {}"},
      Field<L, std::int64_t>{"kernel", &L::kernel, Cost::size, "kernel {}"},
      Field<L, std::int64_t>{"stride", &L::stride, Cost::amount, "stride {}"},
      Field<L, std::int64_t>{"padding", &L::padding, Cost::amount, "padding {}"},
      Field<L, std::int64_t>{"groups", &L::groups, Cost::amount, "of {} groups"},
      Field<L, std::int64_t>{"heads", &L::heads, Cost::amount, "of {} heads"},
      Field<L, std::int64_t>{"experts", &L::experts, Cost::size, "of {} experts"},
      Field<L, std::int64_t>{"top", &L::top, Cost::amount, "{} for each row"},
      Field<L, std::int64_t>{"kept", &L::kept, Cost::size, "of {} rows"},
      Field<L, double>{"p", &L::p, Cost::one, "{}"},
      Field<L, bool>{"bias", &L::bias, Cost::one, "without bias"},
      Field<L, bool>{"in_place", &L::in_place, Cost::one, "in place"},
      Field<L, bool>{"causal", &L::causal, Cost::one, "causal"},
      Field<L, bool>{"fused", &L::fused, Cost::one, "fused"},
      Field<L, bool>{"fp8", &L::fp8, Cost::one, "to float8"},
      Field<L, bool>{"frozen", &L::frozen, Cost::one, "frozen"},
      Field<L, int>{"tied_to", &L::tied_to, Cost::one, "tied to {}"},
      Field<L, int>{"stream", &L::stream, Cost::one, "from stream {}"},
      Field<L, const CustomLayer*>{"layer", &L::layer, Cost::none, "{}"},
      Field<L, bool>{"eval", &L::eval, Cost::one, "in eval mode"},
      Field<L, std::vector<ValueRef>>{"from", &L::from, Cost::amount, "from {}"},
  };
};

/// Whether one of the layers has the value as a further operand.
inline bool reads(const std::vector<LayerSpec>& layers, ValueRef value) {
  return std::any_of(layers.begin(), layers.end(), [value](const LayerSpec& l) {
    return std::find(l.from.begin(), l.from.end(), value) != l.from.end();
  });
}

/// The model input of these layers is tokens, integers in [0, vocabulary), if the first of them has
/// a vocabulary; no other layer takes tokens. 0: the input is numbers.
inline std::int64_t vocabulary_of(const std::vector<LayerSpec>& layers) {
  return layers.empty() ? 0 : layers[0].vocabulary;
}

/// Whether a layer of a model in that mode is in train mode itself.
inline bool trains_in(const LayerSpec& spec, bool train) { return train && !spec.eval; }

/// Some of the fields of LayerSpec.
class LayerFields {
 public:
  constexpr LayerFields() = default;
  /// By name; a name that is none does not compile.
  consteval LayerFields(std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) bits_ |= 1U << position(name);
  }
  constexpr bool contains(std::string_view name) const {
    return (bits_ >> position(name) & 1) != 0;
  }

 private:
  static constexpr std::size_t position(std::string_view name) {
    return std::apply(
        [&](const auto&... fields) {
          const std::array names{fields.name...};
          std::size_t i = 0;
          while (names.at(i) != name) ++i;
          return i;
        },
        FieldsOf<LayerSpec>::list);
  }
  unsigned bits_ = 0;
};

}  // namespace rematch
