#include "engine/ops/cast.h"

#include <utility>

#include "engine/autograd/autocast.h"
#include "engine/kernels/cast.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

/// `values` as the result of casting `x`.
Tensor recorded(const Tensor& x, Tensor values) {
  record_unary(values, "CastBackward", x,
               [from = x.dtype()](const Tensor& gy) { return cast_values(gy, from); });
  return values;
}

bool is_parameter(const Tensor& t) {
  return t.requires_grad() && t.is_leaf() && t.impl()->base == nullptr;
}

}  // namespace

Tensor cast_values(Tensor x, DType to) {
  const DType from = x.dtype();
  if (from == to) return x;
  const auto castable = [](DType d) { return d == DType::float32 || d == DType::bfloat16; };
  require(castable(from) && castable(to), "cast", [&] {
    return "a cast between float32 and bfloat16 expected, got one from " +
           std::string(to_string(from)) + " to " + std::string(to_string(to));
  });
  Tensor y = Tensor::empty(x.shape(), to);
  if (to == DType::float32) {
    REMATCH_KERNEL(x, upcast, x.elements(), x.data<math::BFloat16>(), y.data<float>());
  } else {
    REMATCH_KERNEL(x, downcast, x.elements(), x.data<float>(), y.data<math::BFloat16>());
  }
  return y;
}

Tensor wide_values(Tensor x) {
  return x.defined() && x.dtype() == DType::bfloat16 ? cast_values(std::move(x), DType::float32)
                                                     : x;
}

Tensor cast(const Tensor& x, DType to) {
  if (x.dtype() == to) return x;
  if (OpWatcher* watcher = ambient().ops) watcher->read(x);
  return recorded(x, cast_values(x, to));
}

Tensor autocast_input(const Tensor& x) {
  // The op itself announces what it reads.
  if (x.dtype() != DType::float32) return x;
  return recorded(x, cast_values(x, ambient().autocast.dtype));
}

Tensor autocast_parameter(const Tensor& w) {
  if (!w.defined() || w.dtype() != DType::float32) return w;
  const Autocast& autocast = ambient().autocast;
  if (!autocast.cache_enabled || !autocast.cache || !is_parameter(w)) {
    return recorded(w, cast_values(w, autocast.dtype));
  }
  Tensor values = autocast.cache->find(w);
  if (!values.defined()) {
    values = cast_values(w, autocast.dtype);
    autocast.cache->put(w, values);
  }
  return recorded(w, std::move(values));
}

}  // namespace rematch
