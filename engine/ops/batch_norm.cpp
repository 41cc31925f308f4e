#include "engine/ops/batch_norm.h"

#include "engine/backend/kernel.h"
#include "engine/cpu/batch_norm.h"
#include "engine/cuda/batch_norm.h"
#include "engine/ops/support.h"

namespace rematch {
namespace {

struct Extents {
  std::int64_t n;
  std::int64_t c;
  std::int64_t s;
};

class BatchNormBackward final : public Node {
 public:
  BatchNormBackward(Extents extents, bool train, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, const Tensor& mean, const Tensor& invstd)
      : Node(1), extents_(extents), train_(train), shape_(x.shape()) {
    connect(*this, {&x, &weight, &bias});
    x_.save(x);
    mean_.save(mean);
    invstd_.save(invstd);
    if (needs(0)) weight_.save(weight);
  }
  std::string_view name() const override { return "BatchNormBackward"; }
  void release() noexcept override {
    x_.reset();
    mean_.reset();
    invstd_.reset();
    weight_.reset();
  }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor& gy = grads_out[0];
    const Tensor x = x_.get(name());
    const Tensor mean = mean_.get(name());
    const Tensor invstd = invstd_.get(name());
    const Tensor weight = needs(0) ? weight_.get(name()) : Tensor();
    if (needs(0)) grads_in[0] = Tensor::empty(shape_, gy.dtype());
    if (needs(1)) grads_in[1] = Tensor::empty({extents_.c}, gy.dtype());
    if (needs(2)) grads_in[2] = Tensor::empty({extents_.c}, gy.dtype());
    for_floating(gy.dtype(), name(), [&]<class T>() {
      const auto target = [&](std::size_t i) {
        return grads_in[i].defined() ? grads_in[i].data<T>() : nullptr;
      };
      REMATCH_KERNEL(gy, batch_norm_backward<T>, extents_.n, extents_.c, extents_.s, gy.data<T>(),
                     x.data<T>(), mean.data<T>(), invstd.data<T>(),
                     weight.defined() ? weight.data<T>() : nullptr, train_, target(0), target(1),
                     target(2));
    });
  }

 private:
  Extents extents_;
  bool train_;
  Shape shape_;
  SavedTensor x_;
  SavedTensor mean_;
  SavedTensor invstd_;
  SavedTensor weight_;
};

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& running_mean,
                  Tensor& running_var, const BatchNormOptions& options) {
  constexpr std::string_view op = "batch_norm";
  if (is_narrow(x) || is_narrow(weight) || is_narrow(bias)) {
    return batch_norm(widened(x), widened(weight), widened(bias), running_mean, running_var,
                      options);
  }
  require(x.shape().rank() == 2 || x.shape().rank() == 4, op,
          [&] { return "input of rank 2 or 4 expected, got " + to_string(x.shape()); });
  const Shape& shape = x.shape();
  const Extents e{shape[0], shape[1], shape.rank() == 4 ? shape[2] * shape[3] : 1};
  for (const Tensor* t : {&weight, &bias, static_cast<const Tensor*>(&running_mean),
                          static_cast<const Tensor*>(&running_var)}) {
    require_shape(op, "parameter or statistic", *t, {e.c});
    require_same_dtype(op, x, *t);
  }
  require(!options.train || e.n * e.s > 1, op, [&] {
    return "training needs more than one value per channel, got input " + to_string(shape);
  });
  // The forward has already counted this batch.
  const bool update = options.train && !ambient().replaying;
  if (update) {
    running_mean.storage()->before_write();
    running_var.storage()->before_write();
  }
  // Training does not read the running statistics.
  static const Tensor kUnread;
  const OpCall call{op,
                    {&x, &weight, &bias, options.train ? &kUnread : &running_mean,
                     options.train ? &kUnread : &running_var},
                    attributes(options.train, options.momentum, options.eps)};
  auto [y, mean, invstd] = compute(call, [&] {
    std::array<Tensor, 3> out{Tensor::empty(shape, x.dtype()), Tensor::empty({e.c}, x.dtype()),
                              Tensor::empty({e.c}, x.dtype())};
    for_floating(x.dtype(), op, [&]<class T>() {
      const T eps = static_cast<T>(options.eps);
      if (options.train) {
        REMATCH_KERNEL(x, batch_norm_train<T>, e.n, e.c, e.s, x.data<T>(), weight.data<T>(),
                       bias.data<T>(), eps, out[0].data<T>(), out[1].data<T>(), out[2].data<T>(),
                       update ? running_mean.data<T>() : nullptr,
                       update ? running_var.data<T>() : nullptr, static_cast<T>(options.momentum));
      } else {
        REMATCH_KERNEL(x, batch_norm_eval<T>, e.n, e.c, e.s, x.data<T>(), weight.data<T>(),
                       bias.data<T>(), running_mean.data<T>(), running_var.data<T>(), eps,
                       out[0].data<T>(), out[1].data<T>(), out[2].data<T>());
      }
    });
    return out;
  });
  if (update) {
    running_mean.storage()->bump_version();
    running_var.storage()->bump_version();
  }
  record<BatchNormBackward>(y, {&x, &weight, &bias}, e, options.train, x, weight, bias, mean,
                            invstd);
  return y;
}

}  // namespace rematch
