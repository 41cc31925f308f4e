#include "engine/ops/pool2d.h"

#include "engine/kernels/pool2d.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

Pool2dShape checked_shape(std::string_view op, const Tensor& x, std::int64_t kernel,
                          std::int64_t stride, std::int64_t padding) {
  require_rank(op, "input", x, 4);
  require(kernel >= 1 && stride >= 1 && padding >= 0 && 2 * padding <= kernel, op, [&] {
    return "kernel >= 1, stride >= 1 and 0 <= padding <= kernel / 2 expected, got " +
           std::to_string(kernel) + ", " + std::to_string(stride) + ", " + std::to_string(padding);
  });
  const Shape& s = x.shape();
  require(s[2] + 2 * padding >= kernel && s[3] + 2 * padding >= kernel, op, [&] {
    return "window " + std::to_string(kernel) + " does not fit the input " + to_string(s) +
           " padded by " + std::to_string(padding);
  });
  return {s[0], s[1], s[2], s[3], kernel, kernel, stride, stride, padding, padding};
}

class MaxPool2dBackward final : public Node {
 public:
  MaxPool2dBackward(const Pool2dShape& shape, const Tensor& x, const Tensor& indices)
      : Node(1), shape_(shape) {
    connect(*this, {&x});
    indices_.save(indices);
  }
  std::string_view name() const override { return "MaxPool2dBackward"; }
  void release() noexcept override { indices_.reset(); }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor& gy = grads_out[0];
    const Tensor indices = indices_.get(name());
    grads_in[0] = Tensor::empty({shape_.n, shape_.c, shape_.h, shape_.w}, gy.dtype());
    for_floating(gy.dtype(), name(), [&]<class T>() {
      REMATCH_KERNEL(gy, max_pool2d_backward<T>, shape_, gy.data<T>(), indices.data<std::int32_t>(),
                     grads_in[0].data<T>());
    });
  }

 private:
  Pool2dShape shape_;
  SavedTensor indices_;
};

class AvgPool2dBackward final : public Node {
 public:
  AvgPool2dBackward(const Pool2dShape& shape, const Tensor& x) : Node(1), shape_(shape) {
    connect(*this, {&x});
  }
  std::string_view name() const override { return "AvgPool2dBackward"; }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor& gy = grads_out[0];
    grads_in[0] = Tensor::empty({shape_.n, shape_.c, shape_.h, shape_.w}, gy.dtype());
    for_floating(gy.dtype(), name(), [&]<class T>() {
      REMATCH_KERNEL(gy, avg_pool2d_backward<T>, shape_, gy.data<T>(), grads_in[0].data<T>());
    });
  }

 private:
  Pool2dShape shape_;
};

}  // namespace

Tensor max_pool2d(const Tensor& x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  if (is_bfloat16(x)) return max_pool2d(upcast(x), kernel, stride, padding);
  const Pool2dShape s = checked_shape("max_pool2d", x, kernel, stride, padding);
  const Shape out{s.n, s.c, s.out_h(), s.out_w()};
  const OpCall call{"max_pool2d", {&x}, attributes(kernel, stride, padding)};
  auto [y, indices] = compute(call, [&] {
    std::array<Tensor, 2> made{Tensor::empty(out, x.dtype()), Tensor::empty(out, DType::int32)};
    for_floating(x.dtype(), "max_pool2d", [&]<class T>() {
      REMATCH_KERNEL(x, max_pool2d_forward<T>, s, x.data<T>(), made[0].data<T>(),
                     made[1].data<std::int32_t>());
    });
    return made;
  });
  record<MaxPool2dBackward>(y, {&x}, s, x, indices);
  return y;
}

Tensor avg_pool2d(const Tensor& x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  if (is_bfloat16(x)) return avg_pool2d(upcast(x), kernel, stride, padding);
  const Pool2dShape s = checked_shape("avg_pool2d", x, kernel, stride, padding);
  const OpCall call{"avg_pool2d", {&x}, attributes(kernel, stride, padding)};
  Tensor y = compute_one(call, [&] {
    Tensor out = Tensor::empty({s.n, s.c, s.out_h(), s.out_w()}, x.dtype());
    for_floating(x.dtype(), "avg_pool2d", [&]<class T>() {
      REMATCH_KERNEL(x, avg_pool2d_forward<T>, s, x.data<T>(), out.data<T>());
    });
    return out;
  });
  record<AvgPool2dBackward>(y, {&x}, s, x);
  return y;
}

}  // namespace rematch
