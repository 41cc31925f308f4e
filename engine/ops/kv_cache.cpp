#include "engine/ops/kv_cache.h"

#include "engine/kernels/concat.h"
#include "engine/kernels/kv_cache.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"
#include "engine/tensor/state_reader.h"

namespace rematch {
Tensor kv_cache(const Tensor& x, Tensor& cache, bool train) {
  constexpr std::string_view op = "kv_cache";
  if (is_bfloat16(x)) return kv_cache(upcast(x), cache, train);
  require_rank(op, "input", x, 3);
  require(x.shape()[0] > 0, op, [&] { return "a sequence expected, got " + to_string(x.shape()); });
  require_rank(op, "cache", cache, 2);
  require_shape(op, "cache", cache, {cache.shape()[0], x.shape()[2]});
  require_same_dtype(op, x, cache);
  const StateRead read(cache);
  // The forward has already appended these rows.
  const bool update = train && !ambient().recomputing;
  if (update) cache.storage()->before_write();
  const std::int64_t added = x.shape()[1] * x.shape()[2];
  Tensor y = compute_one({op, {&x}, attributes(train)}, [&] {
    Tensor out =
        Tensor::empty(x.shape().with_extent(1, cache.shape()[0] + x.shape()[1]), x.dtype());
    for_floating(x.dtype(), op, [&]<class T>() {
      REMATCH_KERNEL(x, prepend<T>, x.shape()[0], cache.elements(), added, read.value.data<T>(),
                     x.data<T>(), out.data<T>());
    });
    return out;
  });
  if (update) {
    const std::byte* const last = static_cast<const std::byte*>(y.raw()) +
                                  added * static_cast<std::int64_t>(size_of(x.dtype()));
    cache.storage()->memory().copy(cache.raw(), last, cache.bytes());
    cache.storage()->bump_version();
  }
  record_unary(y, "KvCacheBackward", x,
               [shape = x.shape(), cached = cache.elements(), added](const Tensor& gy) {
                 Tensor gx = Tensor::empty(shape, gy.dtype());
                 for_floating(gy.dtype(), "KvCacheBackward", [&]<class T>() {
                   T* const none = nullptr;
                   REMATCH_KERNEL(gy, split2<T>, shape[0], cached, added, gy.data<T>(), none,
                                  gx.data<T>());
                 });
                 return gx;
               });
  return y;
}

}  // namespace rematch
