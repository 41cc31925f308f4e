#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/math/dtype.h"
#include "engine/tensor/shape.h"
#include "engine/tensor/storage.h"

namespace rematch {

class Node;
struct TensorImpl;
class Tensor;

/// Called with a gradient, with grad mode off. Returns a replacement of the same shape and dtype,
/// or an undefined tensor to leave the gradient unchanged.
using GradientHook = std::function<Tensor(const Tensor&)>;

/// A handle to a dense, contiguous, row-major array that may take part in autograd. Copies share
/// the array and its gradient. A default-constructed tensor is undefined. An absent gradient is an
/// undefined tensor (PyTorch's None), never zeros.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}

  /// Uninitialised. Throws OutOfMemory.
  static Tensor empty(const Shape& shape, DType dtype, Tag tag = Tag::temporaries);
  static Tensor full(const Shape& shape, DType dtype, double value, Tag tag = Tag::temporaries);
  static Tensor zeros(const Shape& shape, DType dtype, Tag tag = Tag::temporaries) {
    return full(shape, dtype, 0.0, tag);
  }
  static Tensor ones(const Shape& shape, DType dtype, Tag tag = Tag::temporaries) {
    return full(shape, dtype, 1.0, tag);
  }
  /// Converts the values to `dtype`; their number must match the shape.
  static Tensor from(std::span<const double> values, const Shape& shape,
                     DType dtype = DType::float32);

  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const;
  DType dtype() const;
  std::int64_t elements() const { return shape().elements(); }
  /// Number of elements times element size.
  std::int64_t bytes() const;

  template <class T>
  T* data() {
    check_dtype(dtype_of<T>());
    return reinterpret_cast<T*>(raw());
  }
  template <class T>
  const T* data() const {
    check_dtype(dtype_of<T>());
    return reinterpret_cast<const T*>(raw());
  }
  /// Device of the elements. data() can only be used to access elements on the CPU.
  Device device() const { return storage()->device(); }
  std::byte* raw() const;
  /// Copy all bytes from or to the host; the span must have exactly bytes() bytes. For a device
  /// tensor the host waits for the copy.
  void copy_from_host(std::span<const std::byte> bytes);
  void copy_to_host(std::span<std::byte> bytes) const;
  /// Element `i` as double, for tests and pictures.
  double at(std::int64_t i) const;
  /// The only element; throws std::invalid_argument when there are more.
  double item() const;
  std::vector<double> to_vector() const;

  /// Shown in error messages ("fc1.weight"); empty unless set.
  std::string_view name() const;
  Tensor& set_name(std::string name);

  const std::shared_ptr<Storage>& storage() const;
  std::uint64_t version() const { return storage()->version(); }

  bool requires_grad() const;
  /// Leaves only: throws std::invalid_argument on the result of an op or on an integer tensor.
  Tensor& set_requires_grad(bool on);
  /// True without a grad_fn: created by the user, or by ops that did not record.
  bool is_leaf() const;
  /// The node that made this tensor, nullptr for a leaf.
  std::shared_ptr<Node> grad_fn() const;
  int output_index() const;
  /// Accumulated gradient of a leaf; undefined when absent.
  const Tensor& grad() const;
  void set_grad(Tensor gradient);

  /// Returns a tensor with the same storage and version counter, without history.
  Tensor detach() const;
  /// Returns a copy in new storage, without history.
  Tensor clone(Tag tag = Tag::temporaries) const;

  /// `hook` runs on this tensor's gradient in every backward that computes one, after all
  /// contributions have been summed and before the gradient is used. Requires requires_grad().
  void register_hook(GradientHook hook);

  friend bool is_same(const Tensor& a, const Tensor& b) { return a.impl_ == b.impl_; }
  TensorImpl* impl() const { return impl_.get(); }
  const std::shared_ptr<TensorImpl>& shared_impl() const { return impl_; }

 private:
  void check_dtype(DType wanted) const;
  std::shared_ptr<TensorImpl> impl_;
};

using Tensors = std::vector<Tensor>;

/// Internals of a tensor, for ops and autograd only.
struct TensorImpl : std::enable_shared_from_this<TensorImpl> {
  std::shared_ptr<Storage> storage;
  Shape shape;
  DType dtype = DType::float32;
  bool requires_grad = false;
  /// Shares memory with a tensor that does not have its history. Autograd would not see an in-place
  /// write, so such a write is an error.
  bool sealed = false;
  /// For a reshape view: the storage version for which grad_fn is valid. An in-place op on `base`
  /// makes grad_fn stale; Tensor::grad_fn() then rebuilds it.
  std::uint64_t view_version = 0;
  int output_index = 0;
  std::shared_ptr<TensorImpl> base;
  std::shared_ptr<Node> grad_fn;
  Tensor grad;
  std::weak_ptr<Node> accumulator;
  std::unique_ptr<std::vector<GradientHook>> leaf_hooks;
  std::unique_ptr<std::string> name;
};

}  // namespace rematch
