#include "engine/ops/noise.h"

#include <vector>

#include "engine/kernels/random.h"
#include "engine/ops/activation.h"
#include "engine/ops/draw.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

/// The kernel adds the noise as it draws it; who wants to see the noise itself has it drawn again,
/// outside the ledger.
void report_noise(const Generator& g, const Tensor& x) {
  if (ambient().observer == nullptr) return;
  MemoryResource& memory = ambient().ledger->memory();
  const std::int64_t bytes = x.bytes();
  void* const block = bytes == 0 ? nullptr : memory.allocate(bytes);
  if (block == nullptr && bytes > 0) throw OutOfMemory("[gaussian_noise] out of memory");
  for_floating(x.dtype(), "gaussian_noise", [&]<class T>() {
    REMATCH_KERNEL(x, fill_normal<T>, x.elements(), g.seed, g.stream, g.offset, T{0}, T{1},
                   static_cast<T*>(block));
  });
  report_draw(g, x.elements(), memory, block, bytes);
  if (block != nullptr) memory.release(block, bytes);
}

}  // namespace

Tensor rrelu(const Tensor& x, double lower, double upper, const RandomOptions& options) {
  require(lower <= upper, "rrelu", [&] {
    return "lower <= upper expected, got " + std::to_string(lower) + " and " +
           std::to_string(upper);
  });
  if (!options.train) return leaky_relu(x, (lower + upper) / 2);
  if (is_bfloat16(x)) return rrelu(upcast(x), lower, upper, options);
  require_floating("rrelu", x);
  const OpCall call{"rrelu", {&x}, attributes(lower, upper, options.stream)};
  auto [y, noise] = compute_draw(call, x.elements(), options.stream, [&](const Generator& g) {
    std::array<Tensor, 2> out{Tensor::empty(x.shape(), x.dtype()),
                              Tensor::empty(x.shape(), x.dtype())};
    for_floating(x.dtype(), "rrelu", [&]<class T>() {
      REMATCH_KERNEL(x, rrelu_forward<T>, x.elements(), x.data<T>(), static_cast<T>(lower),
                     static_cast<T>(upper), g.seed, g.stream, g.offset, out[1].data<T>(),
                     out[0].data<T>());
    });
    report_draw(g, out[1]);
    return out;
  });
  const auto gradient = [](const Tensor& gy, const Tensor& factors) {
    Tensor gx = Tensor::empty(gy.shape(), gy.dtype());
    for_floating(gy.dtype(), "RReluBackward", [&]<class T>() {
      REMATCH_KERNEL(gy, multiply<T>, gy.elements(), gy.data<T>(), factors.data<T>(), gx.data<T>());
    });
    return gx;
  };
  record_unary(y, "RReluBackward", x, gradient, noise);
  return y;
}

Tensor gaussian_noise(const Tensor& x, double sigma, const RandomOptions& options) {
  require(sigma >= 0, "gaussian_noise",
          [&] { return "sigma >= 0 expected, got " + std::to_string(sigma); });
  if (sigma == 0 || !options.train) return x;
  if (is_bfloat16(x)) return gaussian_noise(upcast(x), sigma, options);
  require_floating("gaussian_noise", x);
  const OpCall call{"gaussian_noise", {&x}, attributes(sigma, options.stream)};
  auto [y] = compute_draw(call, x.elements(), options.stream, [&](const Generator& g) {
    std::array<Tensor, 1> out{Tensor::empty(x.shape(), x.dtype())};
    for_floating(x.dtype(), "gaussian_noise", [&]<class T>() {
      REMATCH_KERNEL(x, gaussian_noise_forward<T>, x.elements(), x.data<T>(), static_cast<T>(sigma),
                     g.seed, g.stream, g.offset, out[0].data<T>());
    });
    report_noise(g, x);
    return out;
  });
  record_unary(y, "GaussianNoiseBackward", x, [](const Tensor& gy) { return gy; });
  return y;
}

}  // namespace rematch
