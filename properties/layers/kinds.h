#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

/// One line for each kind of layer: KIND(name) refers to properties/layers/name.cpp, which defines
/// everything that the harness knows about it. The mixes draw kinds in this order.
#define REMATCH_LAYER_KINDS(KIND) \
  KIND(embedding)                 \
  KIND(linear)                    \
  KIND(conv2d)                    \
  KIND(relu)                      \
  KIND(max_pool2d)                \
  KIND(avg_pool2d)                \
  KIND(batch_norm)                \
  KIND(dropout)                   \
  KIND(layer_norm)                \
  KIND(group_norm)                \
  KIND(rms_norm)                  \
  KIND(gelu)                      \
  KIND(silu)                      \
  KIND(tanh)                      \
  KIND(sigmoid)                   \
  KIND(softmax)                   \
  KIND(delayed_scaling)           \
  KIND(spectral_norm)             \
  KIND(kv_cache)                  \
  KIND(gru)                       \
  KIND(lstm)                      \
  KIND(moe)                       \
  KIND(stochastic_depth)          \
  KIND(early_exit)                \
  KIND(hooked)                    \
  KIND(rotary)                    \
  KIND(rrelu)                     \
  KIND(gaussian_noise)            \
  KIND(flatten)                   \
  KIND(add)                       \
  KIND(mul)                       \
  KIND(attention)                 \
  KIND(concat)                    \
  KIND(split)                     \
  KIND(duplicate)                 \
  KIND(custom)

namespace rematch {

enum class LayerKind : std::uint8_t {
#define REMATCH_KIND(name) name,
  REMATCH_LAYER_KINDS(REMATCH_KIND)
#undef REMATCH_KIND
};

inline constexpr std::size_t kLayerKinds = 0
#define REMATCH_KIND(name) +1
    REMATCH_LAYER_KINDS(REMATCH_KIND)
#undef REMATCH_KIND
    ;

std::string_view to_string(LayerKind kind);
/// Throws std::invalid_argument when there is none of that name.
LayerKind layer_kind(std::string_view name);

}  // namespace rematch
