#include "engine/ops/moe.h"

#include <array>

#include "engine/kernels/moe.h"
#include "engine/kernels/random.h"
#include "engine/ops/draw.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

constexpr std::string_view kMoe = "moe";
using math::MoeShape;

class MoeBackward final : public Node {
 public:
  MoeBackward(const MoeShape& s, const Tensor& x, const Tensor& router, const Tensor& experts,
              const Tensor& probabilities, const Tensor& chosen, const Tensor& outputs)
      : Node(1), s_(s), shape_(x.shape()) {
    connect(*this, {&x, &router, &experts});
    if (needs_parameters()) x_.save(x);
    if (needs(0)) {
      router_.save(router);
      experts_.save(experts);
    }
    probabilities_.save(probabilities);
    chosen_.save(chosen);
    outputs_.save(outputs);
  }
  std::string_view name() const override { return "MoeBackward"; }
  void release() noexcept override {
    for (SavedTensor* t : {&x_, &router_, &experts_, &probabilities_, &chosen_, &outputs_}) {
      t->reset();
    }
  }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor& gy = grads_out[0];
    const Tensor x = needs_parameters() ? x_.get(name()) : Tensor();
    const Tensor router = needs(0) ? router_.get(name()) : Tensor();
    const Tensor experts = needs(0) ? experts_.get(name()) : Tensor();
    const Tensor probabilities = probabilities_.get(name());
    const Tensor chosen = chosen_.get(name());
    const Tensor outputs = outputs_.get(name());
    const DType dtype = gy.dtype();
    if (needs(0)) grads_in[0] = Tensor::empty(shape_, dtype);
    if (needs(1)) grads_in[1] = Tensor::empty({s_.experts, s_.features}, dtype);
    if (needs(2)) grads_in[2] = Tensor::empty({s_.experts, s_.features, s_.features}, dtype);
    for_floating(dtype, name(), [&]<class T>() {
      const auto source = [](const Tensor& t) -> const T* {
        return t.defined() ? t.data<T>() : nullptr;
      };
      const auto target = [&](std::size_t i) {
        return grads_in[i].defined() ? grads_in[i].data<T>() : nullptr;
      };
      REMATCH_KERNEL(gy, moe_backward<T>, s_, gy.data<T>(), source(x), source(router),
                     source(experts), source(probabilities), chosen.data<std::int32_t>(),
                     source(outputs), target(0), target(1), target(2));
    });
  }

 private:
  bool needs_parameters() const { return needs(1) || needs(2); }

  MoeShape s_;
  Shape shape_;
  SavedTensor x_;
  SavedTensor router_;
  SavedTensor experts_;
  SavedTensor probabilities_;
  SavedTensor chosen_;
  SavedTensor outputs_;
};

MoeShape shape_of(const Tensor& x, const Tensor& router, const Tensor& experts, const Tensor& load,
                  const MoeOptions& options) {
  const int rank = x.shape().rank();
  require(rank >= 2, kMoe,
          [&] { return "input of rank 2 or more expected, got " + to_string(x.shape()); });
  require_rank(kMoe, "router", router, 2);
  MoeShape s{.features = x.shape()[rank - 1], .experts = router.shape()[0], .top = options.top};
  s.rows = 1;
  for (int i = 0; i + 1 < rank; ++i) s.rows *= x.shape()[i];
  require_shape(kMoe, "router", router, {s.experts, s.features});
  require_shape(kMoe, "experts", experts, {s.experts, s.features, s.features});
  require_shape(kMoe, "load", load, {s.experts});
  for (const Tensor* t : {&router, &experts, &load}) require_same_dtype(kMoe, x, *t);
  require(options.top >= 1 && options.top <= s.experts, kMoe, [&] {
    return "top in 1.." + std::to_string(s.experts) + " expected, got " +
           std::to_string(options.top);
  });
  require(options.jitter >= 0, kMoe,
          [&] { return "a jitter of at least 0 expected, got " + std::to_string(options.jitter); });
  return s;
}

/// Puts the noise where the probabilities will be, so that it takes no memory.
template <typename T>
void draw_noise(const Generator& g, Tensor& into) {
  REMATCH_KERNEL(into, fill_uniform<T>, into.elements(), g.seed, g.stream, g.offset, T(0), T(1),
                 into.data<T>());
  report_draw(g, into);
  // An observer of a device may read it as late as this.
  into.storage()->before_write();
}

}  // namespace

Tensor moe(const Tensor& x, const Tensor& router, const Tensor& experts, Tensor& load,
           const MoeOptions& options) {
  if (is_bfloat16(x) || is_bfloat16(router) || is_bfloat16(experts)) {
    const Tensor wide_x = upcast(x);
    const Tensor wide_router = upcast(router);
    return moe(wide_x, wide_router, upcast(experts), load, options);
  }
  require_floating(kMoe, x);
  const MoeShape s = shape_of(x, router, experts, load, options);
  const bool draws = options.random.train && options.jitter > 0;
  const int stream = options.random.stream;
  // The forward has already counted this batch.
  const bool update = options.random.train && !ambient().recomputing;
  if (update) load.storage()->before_write();
  const OpCall call{
      kMoe, {&x, &router, &experts}, attributes(s.top, draws ? options.jitter : 0.0, stream)};
  const auto run = [&](const Generator* g) {
    std::array<Tensor, 4> made{Tensor::empty(x.shape(), x.dtype()),
                               Tensor::empty({s.rows, s.experts}, x.dtype()),
                               Tensor::empty({s.rows, s.top}, DType::int32),
                               Tensor::empty({s.rows, s.top, s.features}, x.dtype())};
    for_floating(x.dtype(), kMoe, [&]<class T>() {
      if (g != nullptr) draw_noise<T>(*g, made[1]);
      REMATCH_KERNEL(x, moe_forward<T>, s, x.data<T>(), router.data<T>(), experts.data<T>(),
                     static_cast<T>(draws ? options.jitter : 0), made[1].data<T>(),
                     made[2].data<std::int32_t>(), made[3].data<T>(), made[0].data<T>());
    });
    return made;
  };
  auto [y, probabilities, chosen, outputs] =
      draws ? compute_draw(call, s.rows * s.experts, stream,
                           [&](const Generator& g) { return run(&g); })
            : compute(call, [&] { return run(nullptr); });
  if (update) {
    // Clang 14 captures no structured binding.
    for_floating(x.dtype(), kMoe, [&, &chosen = chosen]<class T>() {
      REMATCH_KERNEL(x, count_rows_of_experts<T>, chosen.elements(), s.experts,
                     chosen.template data<std::int32_t>(), load.data<T>());
    });
    load.storage()->bump_version();
  }
  record<MoeBackward>(y, {&x, &router, &experts}, s, x, router, experts, probabilities, chosen,
                      outputs);
  return y;
}

}  // namespace rematch
