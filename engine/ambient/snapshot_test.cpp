#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <vector>

#include "engine/autograd/autocast.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/checkpoint/backward_group.h"
#include "engine/tensor/state_reader.h"
#include "engine/testing/ambient_snapshot.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/passing_watcher.h"

namespace rematch {

using namespace testing;

TEST_CASE_METHOD(LedgerScope, "a snapshot of the ambient state differs when any field does") {
  class Observer final : public RunObserver {
    void on_draw(const Generator&, std::int64_t, std::span<const std::byte>) override {}
  } observer;
  class States final : public StateReader {
    Tensor read(const Tensor& state) override { return state; }
  } states;
  FunctionHooks hooks([](const Tensor& t) { return t; }, [](const Tensor& t) { return t; });
  BackwardGroup group;
  ambient().backward_group = nullptr;
  PassingWatcher watcher;
  ambient().ops = nullptr;
  const std::vector<std::function<void(Ambient&)>> changes{
      [](Ambient& a) { a.grad_enabled = false; },
      [](Ambient& a) { a.streams.at(0).draw(1); },
      [](Ambient& a) { a.streams.seed(1); },
      [](Ambient& a) { a.streams.add("more"); },
      [](Ambient& a) { a.streams.add("other"); },
      [](Ambient& a) { a.autocast.enabled = true; },
      [](Ambient& a) { a.autocast.dtype = DType::float32; },
      [](Ambient& a) { a.autocast.cache_enabled = false; },
      [](Ambient& a) { a.autocast.cache = std::make_shared<CastCache>(); },
      [&](Ambient& a) { a.hooks = &hooks; },
      [&](Ambient& a) { a.ops = &watcher; },
      [&](Ambient& a) { a.states = &states; },
      [](Ambient& a) { a.ledger = std::make_shared<Ledger>(); },
      [&](Ambient& a) { a.observer = &observer; },
      [](Ambient& a) { a.recomputing = true; },
      [](Ambient& a) { a.backward_id = 1; },
      [&](Ambient& a) { a.backward_group = &group; },
      [](Ambient& a) { a.early_stop = true; },
      [](Ambient& a) { a.early_stop = false; },
  };
  std::vector<AmbientSnapshot> seen{AmbientSnapshot::now()};
  CHECK(seen.front() == AmbientSnapshot::now());
  for (const auto& change : changes) {
    Ambient changed = ambient();
    change(changed);
    const AmbientSnapshot snapshot = AmbientSnapshot::of(changed);
    for (const AmbientSnapshot& other : seen) CHECK_FALSE(snapshot == other);
    seen.push_back(snapshot);
  }
}

}  // namespace rematch
