#include "properties/laws/events.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kName = "nothing-alive";

std::string_view text_of(Abandonment::Kind kind) {
  switch (kind) {
    case Abandonment::Kind::dropped:
      return "after a graph was dropped without a backward";
    case Abandonment::Kind::forward_failed:
      return "after a layer threw in the forward";
    case Abandonment::Kind::replay_failed:
      return "after a layer threw in a replay";
  }
  return "after an unknown abandonment";
}

std::string place_of(const Case& c, const Abandonment& a) {
  std::string place(text_of(a.kind));
  if (a.layer >= 0)
    place += ", layer " + std::to_string(a.layer) + " (" +
             std::string(to_string(c.layers[static_cast<std::size_t>(a.layer)].kind)) + ")";
  return place;
}

std::optional<Breach> check(const Evidence& e) {
  if (e.abandoned == nullptr) return std::nullopt;
  const Record& record = *e.abandoned;
  if (record.error) return Breach{kName, "the abandoned run", "no error", record.error->message};
  const auto find = [&](Abandonment::Kind kind) -> const Abandonment* {
    for (const Abandonment& a : record.abandonments) {
      if (a.kind == kind) return &a;
    }
    return nullptr;
  };
  const auto judge = [&](Abandonment::Kind kind) -> std::optional<Breach> {
    const Abandonment* a = find(kind);
    if (a == nullptr) {
      return Breach{kName, std::string(text_of(kind)), "a reading", std::string(kNotRecorded)};
    }
    const std::string place = place_of(e.c, *a);
    if (kind != Abandonment::Kind::dropped && a->layer < 0 && !e.forecast.may_fail) {
      return Breach{kName, place, "the layer's exception", "none"};
    }
    if (a->live_after != a->live_before) {
      return Breach{kName, place, std::to_string(a->live_before) + " bytes, as before",
                    std::to_string(a->live_after) + " bytes"};
    }
    if (!a->surroundings_kept) {
      return Breach{kName, place, "grad mode, hooks and autocast as before", "others"};
    }
    // A replay that is not to restore the random state moves it.
    if (!a->streams_kept && e.forecast.values_comparable) {
      return Breach{kName, place, "random streams where the forward left them", "elsewhere"};
    }
    return std::nullopt;
  };
  if (auto b = judge(Abandonment::Kind::dropped)) return b;
  if (auto b = judge(Abandonment::Kind::forward_failed)) return b;
  if (layers_replayed(e.forecast) == 0) return std::nullopt;
  return judge(Abandonment::Kind::replay_failed);
}

}  // namespace

extern const Law nothing_alive_law;
const Law nothing_alive_law{
    kName,
    "When a graph is dropped without a backward, or an exception leaves a forward or a replay, "
    "everything that was made for it is gone, and the surroundings are as they were.",
    check, Needs::abandoned};

}  // namespace rematch
