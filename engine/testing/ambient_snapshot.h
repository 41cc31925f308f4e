#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "engine/ambient/ambient.h"

namespace rematch::testing {

/// Every field of an ambient state, as a value that can be compared.
struct AmbientSnapshot {
  bool grad_enabled = false;
  std::vector<Generator> streams;
  std::vector<std::string> stream_names;
  bool autocast = false;
  DType autocast_dtype{};
  bool autocast_caches = false;
  const void* cache = nullptr;
  const void* hooks = nullptr;
  const void* ops = nullptr;
  const void* states = nullptr;
  const void* ledger = nullptr;
  const void* observer = nullptr;
  bool recomputing = false;
  std::uint64_t backward_id = 0;
  const void* backward_group = nullptr;
  std::optional<bool> early_stop;

  friend bool operator==(const AmbientSnapshot&, const AmbientSnapshot&) = default;

  friend std::ostream& operator<<(std::ostream& to, const AmbientSnapshot& s) {
    to << "grad " << s.grad_enabled << ", streams";
    for (const Generator& g : s.streams) to << ' ' << g.seed << '/' << g.stream << '/' << g.offset;
    for (const std::string& name : s.stream_names) to << " \"" << name << '"';
    to << ", autocast " << s.autocast << ' ' << to_string(s.autocast_dtype) << ' '
       << s.autocast_caches << ' ' << s.cache << ", hooks " << s.hooks << ", ops " << s.ops
       << ", states " << s.states << ", ledger " << s.ledger << ", observer " << s.observer
       << ", recomputing " << s.recomputing << ", backward " << s.backward_id << ", group "
       << s.backward_group << ", early stop ";
    if (s.early_stop) return to << *s.early_stop;
    return to << "undecided";
  }

  static AmbientSnapshot of(const Ambient& state) {
    AmbientSnapshot s;
    s.grad_enabled = state.grad_enabled;
    s.streams = state.streams.states();
    for (int i = 0; i < state.streams.size(); ++i) {
      s.stream_names.push_back(state.streams.name(i));
    }
    s.autocast = state.autocast.enabled;
    s.autocast_dtype = state.autocast.dtype;
    s.autocast_caches = state.autocast.cache_enabled;
    s.cache = state.autocast.cache.get();
    s.hooks = state.hooks;
    s.ops = state.ops;
    s.states = state.states;
    s.ledger = state.ledger.get();
    s.observer = state.observer;
    s.recomputing = state.recomputing;
    s.backward_id = state.backward_id;
    s.backward_group = state.backward_group;
    s.early_stop = state.early_stop;
    return s;
  }
  static AmbientSnapshot now() { return of(ambient()); }
};

/// Without what draws move.
inline AmbientSnapshot apart_from_draws(AmbientSnapshot s) {
  s.streams.clear();
  return s;
}

}  // namespace rematch::testing
