#include "engine/checkpoint/backward_group.h"

#include <stdexcept>

#include "engine/ambient/ambient.h"

namespace rematch {
namespace {

/// Backward passes count from 1 and never come here.
constexpr std::uint64_t kGroups = std::uint64_t{1} << 63;

std::uint64_t next_group() {
  thread_local std::uint64_t counter = kGroups;
  return ++counter;
}

}  // namespace

BackwardGroup::BackwardGroup() : id_(next_group()) {
  if (ambient().backward_group != nullptr) {
    throw std::invalid_argument(
        "[backward_group] a group cannot begin inside another; end the outer one first");
  }
  ambient().backward_group = this;
}

BackwardGroup::~BackwardGroup() {
  ambient().backward_group = nullptr;
  for (const auto& callback : at_end_) callback();
}

BackwardGroup* BackwardGroup::current() { return ambient().backward_group; }

}  // namespace rematch
