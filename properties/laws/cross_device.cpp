#include <fmt/format.h>

#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kCrossDevice = "cross-device";

std::optional<Violation> check_cross_device(const Evidence& e) {
  for (const Agreement& a : e.layers->agreements) {
    if (a.holds) continue;
    return Violation{
        kCrossDevice,
        fmt::format("{} run alone, {}, element {}", layer_name(e.c, a.layer), a.what, a.element),
        a.bound > 0 ? fmt::format("{:.17g} within {:.3g}", a.host, a.bound)
                    : fmt::format("{:.17g}, to the bit", a.host),
        fmt::format("{:.17g}", a.device)};
  }
  return std::nullopt;
}

}  // namespace

extern const Law cross_device_law;
const Law cross_device_law{
    .name = kCrossDevice,
    .statement =
        "Each layer, run alone, gives the same result on a device as on the host: the same bits, "
        "or values within the error bound of its sums where a library chooses their order.",
    .harm = "A model gives other results on the device than on the host.",
    .topic = Topic::numbers,
    .check = check_cross_device,
    .reads = {Observable::host_agreement},
    .extra_runs = {ExtraRun::layers}};

}  // namespace rematch
