#include "engine/tensor/accumulate.h"

#include <stdexcept>

#include "engine/kernels/elementwise.h"
#include "engine/tensor/dispatch.h"
#include "engine/tensor/kernel.h"

namespace rematch {

void add_into(Tensor& sum, const Tensor& term) {
  if (!(sum.shape() == term.shape()) || sum.dtype() != term.dtype()) {
    throw std::invalid_argument("[backward] gradient of shape " + to_string(sum.shape()) + " " +
                                std::string(to_string(sum.dtype())) + " expected, got " +
                                to_string(term.shape()) + " " +
                                std::string(to_string(term.dtype())));
  }
  for_gradients(sum.dtype(), "backward", [&]<class T>() {
    REMATCH_KERNEL(term, add_inplace<T>, sum.elements(), term.data<T>(), sum.data<T>());
  });
}

Tensor sum_of(const Tensor& a, const Tensor& b) {
  Tensor out = Tensor::empty(a.shape(), a.dtype());
  for_gradients(a.dtype(), "backward", [&]<class T>() {
    REMATCH_KERNEL(a, add<T>, a.elements(), a.data<T>(), b.data<T>(), out.data<T>());
  });
  return out;
}

bool owned_alone(const Tensor& t) {
  return t.shared_impl().use_count() == 1 && t.storage().use_count() == 1;
}

Tensor reshape_alias(const Tensor& t, const Shape& shape) {
  auto impl = std::make_shared<TensorImpl>();
  impl->storage = t.storage();
  impl->shape = shape;
  impl->dtype = t.dtype();
  return Tensor(std::move(impl));
}

}  // namespace rematch
