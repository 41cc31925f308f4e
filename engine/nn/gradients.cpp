#include "engine/nn/gradients.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/kernels/elementwise.h"
#include "engine/kernels/spectral_norm.h"
#include "engine/ops/arithmetic.h"
#include "engine/tensor/dispatch.h"
#include "engine/tensor/kernel.h"

namespace rematch::nn {
namespace {

void multiply(const Tensors& parameters, double factor) {
  for (const Tensor& p : parameters) {
    Tensor gradient = p.grad();
    if (!gradient.defined()) continue;
    gradient.storage()->before_write();
    for_floating(gradient.dtype(), "gradients", [&]<class T>() {
      REMATCH_KERNEL(gradient, scale_inplace<T>, gradient.elements(), static_cast<T>(factor),
                     gradient.data<T>());
    });
    gradient.storage()->bump_version();
  }
}

double sum_of_squares(const Tensor& t) {
  Tensor sum = Tensor::empty({1}, t.dtype());
  for_floating(t.dtype(), "gradients", [&]<class T>() {
    REMATCH_KERNEL(t, inner_product<T>, t.elements(), t.data<T>(), t.data<T>(), sum.data<T>());
  });
  return sum.at(0);
}

}  // namespace

void clip_gradients(const Tensors& parameters, double most) {
  double squares = 0;
  for (const Tensor& p : parameters) {
    if (p.grad().defined()) squares += sum_of_squares(p.grad());
  }
  const double factor = most / (std::sqrt(squares) + 1e-6);
  // A norm that is no number makes gradients that are none, as it does in PyTorch.
  if (!(factor >= 1)) multiply(parameters, factor);
}

GradScaler::GradScaler(double scale) : scale_(scale) {
  if (!(scale > 0) || !std::isfinite(scale)) {
    throw std::invalid_argument("[grad_scaler] a positive, finite scale expected, got " +
                                std::to_string(scale));
  }
}

Tensor GradScaler::scaled(const Tensor& loss) const { return rematch::scale(loss, scale_); }

bool GradScaler::unscale(const Tensors& parameters) {
  multiply(parameters, 1 / scale_);
  const bool finite = std::all_of(parameters.begin(), parameters.end(), [](const Tensor& p) {
    if (!p.grad().defined()) return true;
    const std::vector<double> values = p.grad().to_vector();
    return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
  });
  if (!finite) scale_ /= 2;
  return finite;
}

}  // namespace rematch::nn
