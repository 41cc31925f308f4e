#include <fmt/format.h>

#include "properties/laws/support.h"
#include "properties/subjects/layer_agreement.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "cross-device";

std::optional<Breach> check(const Evidence& e) {
  if (e.layers == nullptr) return std::nullopt;
  for (const LayerAgreement& a : *e.layers) {
    if (a.holds) continue;
    const LayerKind kind = e.c.layers[static_cast<std::size_t>(a.layer)].kind;
    return Breach{kName,
                  fmt::format("layer {} ({}) by itself, {}, element {}", a.layer, to_string(kind),
                              a.what, a.element),
                  a.bound > 0 ? fmt::format("{:.17g} within {:.3g}", a.host, a.bound)
                              : fmt::format("{:.17g}, to the bit", a.host),
                  fmt::format("{:.17g}", a.device)};
  }
  return std::nullopt;
}

}  // namespace

extern const Law cross_device_law;
const Law cross_device_law{
    kName,
    "Each layer by itself gives on a device what it gives on the host: the "
    "same bits, or within the bound of its sums where a library orders them.",
    check, Needs::layers};

}  // namespace rematch
