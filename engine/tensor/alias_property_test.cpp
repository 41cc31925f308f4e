// Views, aliases and copies of one another, written and saved in any order.
#include <catch2/catch_test_macros.hpp>
#include <stdexcept>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/view.h"
#include "engine/testing/check_property.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {

TEST_CASE_METHOD(testing::LedgerScope, "aliases share values and versions, views history as well") {
  enum Act { kView, kDetach, kClone, kSave, kAdd, kScale, kScaleQuietly, kActs };
  struct Memory {
    double value = 1;
    std::uint64_t version = 0;
  };
  // A tensor and its views.
  struct Family {
    bool requires_grad = false;
    double slope = 0;
  };
  struct Handle {
    Tensor tensor;
    std::size_t memory;
    std::size_t family;
  };
  struct Save {
    SavedTensor tensor;
    std::size_t memory;
    std::uint64_t version;
  };
  // An action, and the tensor that it is done to.
  using Steps = std::vector<std::pair<std::uint8_t, std::uint8_t>>;
  const auto property = [](const Steps& steps) {
    const Tensor x = testing::variable({2}, {1});
    std::vector<Memory> memories(1);
    std::vector<Family> families(1);
    std::vector<Handle> handles{{Tensor::ones({1}, DType::float64), 0, 0}};
    std::vector<Save> saves;
    for (const auto& [what, which] : steps) {
      const int act = what % kActs;
      Handle h = handles[which % handles.size()];
      Memory& memory = memories[h.memory];
      Family& family = families[h.family];
      if (act == kView) {
        h.tensor = reshape(h.tensor, h.tensor.shape().rank() == 1 ? Shape{1, 1} : Shape{1});
        handles.push_back(h);
      } else if (act == kDetach || act == kClone) {
        const bool clone = act == kClone;
        handles.push_back({clone ? h.tensor.clone() : h.tensor.detach(),
                           clone ? memories.size() : h.memory, families.size()});
        families.emplace_back();
        if (clone) memories.push_back({Memory(memory).value, 0});
      } else if (act == kSave) {
        saves.push_back({SavedTensor(), h.memory, memory.version});
        saves.back().tensor.save(h.tensor);
      } else if (act == kAdd) {
        add_(h.tensor, reshape(x, h.tensor.shape()));
        memory = {memory.value + 2, memory.version + 1};
        family = {true, family.slope + 1};
      } else {
        const GradMode mode(act == kScale);
        scale_(h.tensor, -0.5);
        memory = {memory.value * -0.5, memory.version + 1};
        if (act == kScale) family.slope *= -0.5;
      }
      for (const Handle& each : handles) {
        RC_ASSERT(each.tensor.item() == memories[each.memory].value);
        RC_ASSERT(each.tensor.version() == memories[each.memory].version);
        RC_ASSERT(each.tensor.requires_grad() == families[each.family].requires_grad);
      }
    }
    for (const Handle& h : handles) {
      if (!families[h.family].requires_grad) continue;
      const Tensor slope = grad(Tensors{sum(h.tensor)}, Tensors{x}, {}, true)[0];
      RC_ASSERT(slope.item() == families[h.family].slope);
    }
    for (const Save& s : saves) {
      if (memories[s.memory].version == s.version) {
        RC_ASSERT(s.tensor.get("test").item() == memories[s.memory].value);
      } else {
        RC_ASSERT_THROWS_AS(s.tensor.get("test"), std::runtime_error);
      }
    }
  };
  check_property("aliases", property, 1000);
}

}  // namespace rematch
