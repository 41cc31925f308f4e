#include "engine/ops/batch_norm.h"

#include "engine/kernels/batch_norm.h"
#include "engine/ops/norm_node.h"
#include "engine/tensor/kernel.h"

namespace rematch {

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& running_mean,
                  Tensor& running_var, const BatchNormOptions& options) {
  constexpr std::string_view op = "batch_norm";
  if (is_bfloat16(x) || is_bfloat16(weight) || is_bfloat16(bias)) {
    return batch_norm(upcast(x), upcast(weight), upcast(bias), running_mean, running_var, options);
  }
  require(x.shape().rank() == 2 || x.shape().rank() == 4, op,
          [&] { return "input of rank 2 or 4 expected, got " + to_string(x.shape()); });
  const Shape& shape = x.shape();
  const std::int64_t n = shape[0];
  const std::int64_t c = shape[1];
  const std::int64_t s = shape.rank() == 4 ? shape[2] * shape[3] : 1;
  for (const Tensor* t : {&weight, &bias, static_cast<const Tensor*>(&running_mean),
                          static_cast<const Tensor*>(&running_var)}) {
    require_shape(op, "parameter or statistic", *t, {c});
    require_same_dtype(op, x, *t);
  }
  require(!options.train || n * s > 1, op, [&] {
    return "training needs more than one value per channel, got input " + to_string(shape);
  });
  // The forward has already counted this batch.
  const bool update = options.train && !ambient().recomputing;
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
    std::array<Tensor, 3> out{Tensor::empty(shape, x.dtype()), Tensor::empty({c}, x.dtype()),
                              Tensor::empty({c}, x.dtype())};
    for_floating(x.dtype(), op, [&]<class T>() {
      const T eps = static_cast<T>(options.eps);
      if (options.train) {
        REMATCH_KERNEL(x, batch_norm_train<T>, n, c, s, x.data<T>(), weight.data<T>(),
                       bias.data<T>(), eps, out[0].data<T>(), out[1].data<T>(), out[2].data<T>(),
                       update ? running_mean.data<T>() : nullptr,
                       update ? running_var.data<T>() : nullptr, static_cast<T>(options.momentum));
      } else {
        REMATCH_KERNEL(x, batch_norm_eval<T>, n, c, s, x.data<T>(), weight.data<T>(),
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
  record_norm(y, "BatchNormBackward", x, weight, bias, mean, invstd,
              [=, train = options.train]<class T>(const Tensor& gy, const T* g, const T* from,
                                                  const T* centre, const T* factor, const T* w,
                                                  T* gx, T* gw, T* gb) {
                REMATCH_KERNEL(gy, batch_norm_backward, n, c, s, g, from, centre, factor, w, train,
                               gx, gw, gb);
              });
  return y;
}

}  // namespace rematch
