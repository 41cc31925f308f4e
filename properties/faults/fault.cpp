#include "properties/faults/fault.h"

#include "properties/faults/families.h"

namespace rematch {

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = [] {
    std::vector<Fault> list;
    for (const auto& family :
         {random_faults(), gradient_faults(), argument_faults(), state_faults(), partition_faults(),
          fidelity_faults(), lifetime_faults(), concurrency_faults(), error_faults()}) {
      list.insert(list.end(), family.begin(), family.end());
    }
    return list;
  }();
  return all;
}

const Fault* find_fault(std::string_view id) {
  for (const Fault& fault : faults()) {
    if (fault.id == id) return &fault;
  }
  return nullptr;
}

}  // namespace rematch
