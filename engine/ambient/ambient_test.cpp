#include "engine/ambient/ambient.h"

#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "engine/tensor/tensor.h"
#include "engine/testing/ledger_scope.h"

namespace rematch {
namespace {

using testing::LedgerScope;

TEST_CASE_METHOD(LedgerScope, "every thread has an ambient state of its own") {
  ambient().streams.seed(42);
  const GradMode off(false);
  const Ledger* const here = ambient().ledger.get();
  bool enabled = false;
  std::uint64_t seed = 1;
  const Ledger* there = here;
  std::thread([&] {
    enabled = ambient().grad_enabled;
    seed = ambient().streams.at(0).seed;
    there = ambient().ledger.get();
    ambient().streams.seed(43);
  }).join();
  CHECK(enabled);
  CHECK(seed == 0);
  CHECK(there != here);
  CHECK(ambient().streams.at(0).seed == 42);
}

TEST_CASE("the fixture of the tests notices what a test leaves behind") {
  // The fixture itself cannot be run to fail here; what it looks at can.
  const Ambient surrounding = ambient();
  ambient() = Ambient{};
  {
    const Tensor leaked = Tensor::ones({3}, DType::float32, Tag::state);
    CHECK(ambient().ledger->live() == 12);
    CHECK(ambient().ledger->live(Tag::state) == 12);
  }
  CHECK(ambient().ledger->live() == 0);
  ambient() = surrounding;
}

}  // namespace
}  // namespace rematch
