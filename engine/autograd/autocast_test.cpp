#include "engine/autograd/autocast.h"

#include <catch2/catch_test_macros.hpp>
#include <stdexcept>
#include <thread>

#include "engine/ambient/ambient_scope.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;
using testing::tensor;

bool enabled() { return ambient().autocast.enabled; }
const CastCache* cache() { return ambient().autocast.cache.get(); }

TEST_CASE_METHOD(LedgerScope, "autocast is restored when a scope ends, also by an exception") {
  CHECK_FALSE(enabled());
  {
    const AutocastScope on;
    CHECK(enabled());
    {
      const AutocastScope off(false);
      CHECK_FALSE(enabled());
      const AutocastScope uncached(true, false);
      CHECK(enabled());
      CHECK_FALSE(ambient().autocast.cache_enabled);
    }
    CHECK(enabled());
    CHECK(ambient().autocast.cache_enabled);
    try {
      const AutocastScope off(false);
      throw std::domain_error("stop");
    } catch (const std::domain_error&) {
      CHECK(enabled());
    }
  }
  CHECK_FALSE(enabled());
  CHECK(cache() == nullptr);
}

TEST_CASE_METHOD(LedgerScope, "nested scopes share a cache, which the outermost empties") {
  const Tensor w = tensor({1}, {1}, DType::float32);
  const auto put = [&] { ambient().autocast.cache->put(w, tensor({1}, {1}, DType::bfloat16)); };
  Ambient copy;
  {
    const AutocastScope outer(false);
    const CastCache* const shared = cache();
    {
      const AutocastScope inner;
      CHECK(cache() == shared);
      put();
    }
    CHECK(cache()->size() == 1);
    {
      const AutocastScope again(true, false);
      CHECK(cache() == shared);
    }
    CHECK(cache()->size() == 1);
    CHECK(ledger().live() == 4 + 2);
    copy = ambient();
  }
  // A copy of the ambient state does not keep the values.
  CHECK(copy.autocast.cache->size() == 0);
  CHECK(ledger().live() == 4);
}

TEST_CASE_METHOD(LedgerScope, "a fresh ambient state and another thread know no autocast") {
  const AutocastScope on;
  {
    const AmbientScope fresh(ambient().ledger);
    CHECK_FALSE(enabled());
    CHECK(cache() == nullptr);
  }
  CHECK(enabled());
  bool there = true;
  std::thread([&] { there = enabled(); }).join();
  CHECK_FALSE(there);
}

TEST_CASE_METHOD(LedgerScope, "a parameter that died is not mistaken for one in its place") {
  CastCache values;
  values.put(tensor({1}, {1}, DType::float32), tensor({1}, {1}, DType::bfloat16));
  // The ledger hands the block of the first out again, unless a sanitizer keeps it.
  for (int i = 0; i < 100; ++i) {
    CHECK_FALSE(values.find(tensor({2}, {1}, DType::float32)).defined());
  }
}

}  // namespace
}  // namespace rematch
