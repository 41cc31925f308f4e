#include "engine/random/generator.h"

#include <stdexcept>

namespace rematch {

Streams::Streams(std::uint64_t seed) : generators_{Generator{seed, 0, 0}}, names_{"default"} {}

void Streams::seed(std::uint64_t seed) {
  for (Generator& g : generators_) {
    g.seed = seed;
    g.offset = 0;
  }
}

int Streams::add(std::string_view name) {
  for (int i = 0; i < size(); ++i) {
    if (names_[static_cast<std::size_t>(i)] == name) return i;
  }
  generators_.push_back({generators_.front().seed, static_cast<std::uint64_t>(size()), 0});
  names_.emplace_back(name);
  return size() - 1;
}

Generator& Streams::operator[](std::string_view name) {
  for (int i = 0; i < size(); ++i) {
    if (names_[static_cast<std::size_t>(i)] == name) return at(i);
  }
  throw std::invalid_argument("[streams] no random stream named \"" + std::string(name) +
                              "\"; add() it first");
}

void Streams::no_such_stream(int position) const {
  throw std::invalid_argument("[streams] a position below " + std::to_string(size()) +
                              " expected, got " + std::to_string(position) + "; add() it first");
}

void Streams::restore(const std::vector<Generator>& states) {
  if (states.size() != generators_.size()) {
    throw std::invalid_argument("[streams] restore expects " + std::to_string(generators_.size()) +
                                " streams, got " + std::to_string(states.size()));
  }
  generators_ = states;
}

}  // namespace rematch
