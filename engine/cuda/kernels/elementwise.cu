#include "engine/kernels/elementwise.h"

#include <cstddef>
#include <cstring>

#include "engine/cuda/kernels/reduce.h"
#include "engine/cuda/runtime/deferred.h"
#include "engine/math/bfloat16.h"

namespace rematch::cuda {

namespace {

struct Add {
  template <typename T>
  __device__ void operator()(std::int64_t /*i*/, T a, T b, T& out) const {
    out = a + b;
  }
};
struct AddTo {
  template <typename T>
  __device__ void operator()(std::int64_t /*i*/, T x, T& y) const {
    y += x;
  }
};
template <typename T>
struct Scale {
  T s;
  __device__ void operator()(std::int64_t /*i*/, T a, T& out) const { out = a * s; }
  __device__ void operator()(std::int64_t /*i*/, T& x) const { x *= s; }
};
template <typename T>
struct Fill {
  T value;
  __device__ void operator()(std::int64_t /*i*/, T& out) const { out = value; }
};
template <typename T>
struct FillFrom {
  const T* value;
  __device__ void operator()(std::int64_t /*i*/, T& out) const { out = *value; }
};

template <typename T>
struct Element {
  const T* x;
  __device__ T operator()(std::int64_t i) const { return x[i]; }
};
template <typename T>
struct Rounded {
  T* out;
  __device__ void operator()(std::int64_t /*item*/, double total) const {
    *out = static_cast<T>(total);
  }
};

}  // namespace

template <typename T>
void add(std::int64_t n, const T* a, const T* b, T* out) {
  visit<kVector<T>>("add", n, Add{}, In<T>{a}, In<T>{b}, Out<T>{out});
}

template <typename T>
void add_inplace(std::int64_t n, const T* x, T* y) {
  if (n * static_cast<std::int64_t>(sizeof(T)) <= Deferred::kLargest) {
    return deferred().add(y, x, n);
  }
  visit<kVector<T>>("add_inplace", n, AddTo{}, In<T>{x}, InOut<T>{y});
}

template <typename T>
void scale(std::int64_t n, const T* a, T s, T* out) {
  visit<kVector<T>>("scale", n, Scale<T>{s}, In<T>{a}, Out<T>{out});
}

template <typename T>
void scale_inplace(std::int64_t n, T s, T* x) {
  visit<kVector<T>>("scale_inplace", n, Scale<T>{s}, InOut<T>{x});
}

template <typename T>
void fill(std::int64_t n, T value, T* out) {
  const std::int64_t bytes = n * static_cast<std::int64_t>(sizeof(T));
  if (bytes > Deferred::kLargest) {
    return visit<kVector<T>>("fill", n, Fill<T>{value}, Out<T>{out});
  }
  std::uint64_t pattern = 0;
  for (std::size_t at = 0; at < sizeof pattern; at += sizeof value) {
    std::memcpy(reinterpret_cast<std::byte*>(&pattern) + at, &value, sizeof value);
  }
  deferred().fill(out, bytes, pattern);
}

template <typename T>
void fill_from(std::int64_t n, const T* value, T* out) {
  visit<kVector<T>>("fill_from", n, FillFrom<T>{value}, Out<T>{out});
}

template <typename T>
void sum(std::int64_t n, const T* x, T* out) {
  lane_sum<T>("sum", n, Element<T>{x}, Rounded<T>{out});
}

REMATCH_ELEMENTWISE_KERNELS(REMATCH_INSTANTIATE);
REMATCH_ELEMENTWISE_BFLOAT16_KERNELS(REMATCH_INSTANTIATE_BFLOAT16);

}  // namespace rematch::cuda
