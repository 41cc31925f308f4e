#include "engine/autograd/autocast.h"

#include <catch2/catch_test_macros.hpp>

#include "engine/ambient/ambient_scope.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using namespace testing;

const CastCache* cache() { return ambient().autocast.cache.get(); }

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
