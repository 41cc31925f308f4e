// Copies may run beside the computation (engine/autograd/offload.h), so work that writes to memory
// which others have seen has to say so before it is queued.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/nn/layers.h"
#include "engine/nn/optimizer.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/batch_norm.h"
#include "engine/ops/delayed_scaling.h"
#include "engine/ops/kv_cache.h"
#include "engine/ops/moe.h"
#include "engine/ops/spectral_norm.h"
#include "engine/ops/view.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/watched_memory.h"

namespace rematch {
namespace {

struct Writer {
  std::string name;
  std::function<void(Tensor&)> write;
  Shape shape = {2};
};

/// Every operation with a state, which training alone writes to.
std::vector<Writer> states(bool train) {
  const auto ones = [](const Shape& shape) { return Tensor::ones(shape, DType::float64); };
  const auto norm = [=](Tensor& u, Tensor& v) {
    spectral_norm(ones({3, 2}), ones({2, 2}), ones({2}), u, v, train);
  };
  return {
      {"left vector",
       [=](Tensor& t) {
         Tensor v = ones({2});
         norm(t, v);
       }},
      {"right vector",
       [=](Tensor& t) {
         Tensor u = ones({2});
         norm(u, t);
       }},
      {"load of experts",
       [=](Tensor& t) {
         moe(ones({3, 2}), ones({2, 2}), ones({2, 2, 2}), t, {.random = {.train = train}});
       }},
      {"cache",
       [=](Tensor& t) {
         kv_cache(ones({1, 1, 2}), t, train);
       },
       {1, 2}},
      {"scale", [=](Tensor& t) { delayed_scaling(ones({2}), t, train); }, {1}},
      {"history", [=](Tensor& t) { delayed_float8(ones({2}), t, train); }, {4}},
  };
}

/// Every operation that writes to a tensor it is given; the tensor has two channels.
std::vector<Writer> writers() {
  const auto ones = [](const Shape& shape) { return Tensor::ones(shape, DType::float64); };
  const auto normalise = [ones](bool mean, Tensor& t) {
    Tensor other = ones({2});
    batch_norm(ones({3, 2}), other, other, mean ? t : other, mean ? other : t);
  };
  const auto with_gradient = [ones](Tensor& t) {
    t.set_grad(ones({2}));
    return Tensors{t};
  };
  return {
      {"scale_", [](Tensor& t) { scale_(t, 2); }},
      {"add_", [ones](Tensor& t) { add_(t, ones({2})); }},
      {"relu_", [](Tensor& t) { relu_(t); }},
      {"scale_ of a view",
       [](Tensor& t) {
         Tensor view = reshape(t, {2, 1});
         scale_(view, 2);
       }},
      {"a backward into a gradient that is there",
       [ones](Tensor& t) {
         const GradMode on(true);
         Tensor x = ones({2}).set_requires_grad(true);
         x.set_grad(t);
         backward(sum(scale(x, 2)));
       }},
      {"sgd", [=](Tensor& t) { nn::Sgd(with_gradient(t), 0.1).step(); }},
      {"adam", [=](Tensor& t) { nn::Adam(with_gradient(t), 0.1).step(); }},
      {"running mean", [=](Tensor& t) { normalise(true, t); }},
      {"running variance", [=](Tensor& t) { normalise(false, t); }},
      {"fill_uniform",
       [](Tensor& t) {
         Generator g{1, 2, 0};
         nn::fill_uniform(t, 1, g);
       }},
      {"fill_normal",
       [](Tensor& t) {
         Generator g{1, 2, 0};
         nn::fill_normal(t, g);
       }},
  };
}

}  // namespace

TEST_CASE_METHOD(testing::LedgerScope, "whatever writes to a tensor says so before it does") {
  const bool recording = GENERATE(false, true);
  std::vector<Writer> all = writers();
  for (Writer& state : states(/*train=*/true)) all.push_back(std::move(state));
  for (const Writer& writer : all) {
    CAPTURE(writer.name, recording);
    const void* block = nullptr;
    int told = 0;
    ambient().ledger =
        std::make_shared<Ledger>(std::make_unique<testing::WatchedMemory>([&](const void* at) {
          if (at != block) return;
          ++told;
          double value = 0;
          std::memcpy(&value, at, sizeof value);
          CHECK(value == 7);
        }));
    Tensor t = Tensor::full(writer.shape, DType::float64, 7);
    block = t.raw();
    const GradMode mode(recording);
    writer.write(t);
    CHECK(told == 1);
  }
}

TEST_CASE_METHOD(testing::LedgerScope, "evaluation does not say that it writes to a state") {
  for (const Writer& reader : states(/*train=*/false)) {
    CAPTURE(reader.name);
    const void* block = nullptr;
    int told = 0;
    ambient().ledger = std::make_shared<Ledger>(std::make_unique<testing::WatchedMemory>(
        [&](const void* at) { told += at == block ? 1 : 0; }));
    Tensor t = Tensor::full(reader.shape, DType::float64, 7);
    block = t.raw();
    reader.write(t);
    CHECK(told == 0);
  }
}

}  // namespace rematch
