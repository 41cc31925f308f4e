#include "engine/tensor/tensor.h"

#include <algorithm>
#include <stdexcept>

#include "engine/ambient/ambient.h"
#include "engine/ambient/op_watcher.h"
#include "engine/kernels/elementwise.h"
#include "engine/tensor/accumulate.h"
#include "engine/tensor/dispatch.h"
#include "engine/tensor/host_fill.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

const TensorImpl& checked(const TensorImpl* impl) {
  if (impl == nullptr) throw std::invalid_argument("[tensor] the tensor is undefined");
  return *impl;
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype, Tag tag) {
  auto impl = std::make_shared<TensorImpl>();
  impl->storage =
      std::make_shared<Storage>(shape.elements() * static_cast<std::int64_t>(size_of(dtype)), tag);
  impl->shape = shape;
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

namespace {

/// Calls body.operator()<T>() with the C++ type of any dtype.
template <class Body>
decltype(auto) for_any(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::float32:
      return body.template operator()<float>();
    case DType::float64:
      return body.template operator()<double>();
    case DType::int32:
      return body.template operator()<std::int32_t>();
    case DType::bfloat16:
      return body.template operator()<math::BFloat16>();
    case DType::uint8:
      break;
  }
  return body.template operator()<std::uint8_t>();
}

}  // namespace

Tensor Tensor::full(const Shape& shape, DType dtype, double value, Tag tag) {
  Tensor t = empty(shape, dtype, tag);
  if (t.device() != Device::cpu && is_floating(dtype)) {
    for_gradients(dtype, "full", [&]<class T>() {
      REMATCH_KERNEL(t, fill<T>, t.elements(), static_cast<T>(value), t.data<T>());
    });
    return t;
  }
  for_any(dtype, [&]<class T>() {
    fill_on_host<T>(t, [&](std::span<T> values) {
      std::fill(values.begin(), values.end(), static_cast<T>(value));
    });
  });
  return t;
}

Tensor Tensor::from(std::span<const double> values, const Shape& shape, DType dtype) {
  if (static_cast<std::int64_t>(values.size()) != shape.elements()) {
    throw std::invalid_argument("[tensor] shape " + to_string(shape) + " needs " +
                                std::to_string(shape.elements()) + " values, got " +
                                std::to_string(values.size()));
  }
  Tensor t = empty(shape, dtype);
  for_any(dtype, [&]<class T>() {
    fill_on_host<T>(t, [&](std::span<T> out) {
      std::transform(values.begin(), values.end(), out.begin(),
                     [](double v) { return static_cast<T>(v); });
    });
  });
  return t;
}

void Tensor::copy_from_host(std::span<const std::byte> bytes) {
  if (static_cast<std::int64_t>(bytes.size()) != this->bytes()) {
    throw std::invalid_argument("[tensor] " + std::to_string(this->bytes()) +
                                " bytes expected, got " + std::to_string(bytes.size()));
  }
  if (!bytes.empty()) storage()->memory().copy_in(raw(), bytes.data(), this->bytes());
}

void Tensor::copy_to_host(std::span<std::byte> bytes) const {
  if (static_cast<std::int64_t>(bytes.size()) != this->bytes()) {
    throw std::invalid_argument("[tensor] room for " + std::to_string(this->bytes()) +
                                " bytes expected, got " + std::to_string(bytes.size()));
  }
  if (!bytes.empty()) storage()->memory().copy_out(bytes.data(), raw(), this->bytes());
}

std::string_view Tensor::name() const {
  const TensorImpl& impl = checked(this->impl());
  return impl.name ? std::string_view(*impl.name) : std::string_view();
}

Tensor& Tensor::set_name(std::string name) {
  const_cast<TensorImpl&>(checked(this->impl())).name =
      std::make_unique<std::string>(std::move(name));
  return *this;
}

const Shape& Tensor::shape() const { return checked(impl()).shape; }
DType Tensor::dtype() const { return checked(impl()).dtype; }
std::int64_t Tensor::bytes() const {
  return elements() * static_cast<std::int64_t>(size_of(dtype()));
}
std::byte* Tensor::raw() const { return checked(impl()).storage->data(); }
const std::shared_ptr<Storage>& Tensor::storage() const { return checked(impl()).storage; }

void Tensor::check_dtype(DType wanted) const {
  if (dtype() != wanted) {
    throw std::invalid_argument("[tensor] data<" + std::string(to_string(wanted)) +
                                "> of a tensor of " + std::string(to_string(dtype())));
  }
}

double Tensor::at(std::int64_t i) const {
  if (i < 0 || i >= elements()) {
    throw std::invalid_argument("[tensor] an element below " + std::to_string(elements()) +
                                " expected, got " + std::to_string(i));
  }
  return for_any(dtype(), [&]<class T>() {
    T value{};
    storage()->memory().copy_out(&value, data<T>() + i, sizeof(T));
    return static_cast<double>(value);
  });
}

double Tensor::item() const {
  if (elements() != 1) {
    throw std::invalid_argument("[tensor] item() needs one element, got shape " +
                                to_string(shape()));
  }
  return at(0);
}

std::vector<double> Tensor::to_vector() const {
  return for_any(dtype(), [&]<class T>() {
    std::vector<T> values(static_cast<std::size_t>(elements()));
    copy_to_host(std::as_writable_bytes(std::span(values)));
    std::vector<double> wide(values.size());
    std::transform(values.begin(), values.end(), wide.begin(),
                   [](T v) { return static_cast<double>(v); });
    return wide;
  });
}

int Tensor::output_index() const { return checked(impl()).output_index; }
const Tensor& Tensor::grad() const { return checked(impl()).grad; }

void Tensor::set_grad(Tensor gradient) {
  TensorImpl& impl = const_cast<TensorImpl&>(checked(this->impl()));
  if (gradient.defined()) {
    if (!(gradient.shape() == impl.shape) || gradient.dtype() != impl.dtype) {
      throw std::invalid_argument("[tensor] gradient of shape " + to_string(impl.shape) + " " +
                                  std::string(to_string(impl.dtype)) + " expected, got " +
                                  to_string(gradient.shape()) + " " +
                                  std::string(to_string(gradient.dtype())));
    }
    gradient.storage()->set_tag(Tag::gradients);
  }
  impl.grad = std::move(gradient);
}

Tensor Tensor::detach() const { return reshape_alias(*this, shape()); }

Tensor Tensor::clone(Tag tag) const {
  if (OpWatcher* watcher = ambient().ops) watcher->read(*this);
  Tensor copy = empty(shape(), dtype(), tag);
  copy.storage()->memory().copy(copy.raw(), raw(), copy.bytes());
  return copy;
}

}  // namespace rematch
