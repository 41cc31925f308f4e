#include "engine/cpu/threads.h"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/sequential.h"
#include "engine/checkpoint/tensor_hash.h"
#include "engine/cpu/testing/vectors.h"
#include "engine/nn/layers.h"
#include "engine/nn/optimizer.h"
#include "engine/ops/loss.h"
#include "engine/testing/ledger_scope.h"

namespace rematch {
namespace {

using Threads = cpu::ThreadsScope;

using Layers = std::vector<std::shared_ptr<nn::Module>>;

/// Large enough that every kernel is shared out.
Layers layers(Generator& g, DType dtype) {
  const auto activation = [](nn::ActivationKind kind) {
    return std::make_shared<nn::Activation>(kind);
  };
  const auto random = [](nn::RandomKind kind) {
    return std::make_shared<nn::RandomLayer>(kind, 0.4);
  };
  return {std::make_shared<nn::Conv2d>(3, 16, 3, 1, 1, true, dtype, &g),
          activation(nn::ActivationKind::relu),
          std::make_shared<nn::BatchNorm>(16, dtype),
          random(nn::RandomKind::dropout),
          std::make_shared<nn::Conv2d>(16, 17, 3, 2, 1, true, dtype, &g),
          activation(nn::ActivationKind::gelu),
          std::make_shared<nn::GroupNorm>(17, 17, dtype),
          random(nn::RandomKind::rrelu),
          std::make_shared<nn::Pool2d>(nn::PoolKind::max, 2, 2),
          random(nn::RandomKind::gaussian_noise),
          std::make_shared<nn::Flatten>(),
          activation(nn::ActivationKind::silu),
          std::make_shared<nn::Linear>(17 * 8 * 8, 301, true, dtype, &g),
          activation(nn::ActivationKind::tanh),
          std::make_shared<nn::LayerNorm>(301, dtype),
          std::make_shared<nn::RmsNorm>(301, dtype),
          std::make_shared<nn::Linear>(301, 10, true, dtype, &g)};
}

std::vector<std::uint64_t> hashes_of_a_step(int count, DType dtype) {
  const testing::LedgerScope scope;
  const Threads threads(count);
  ambient().streams.seed(3);
  Generator g{1, 7, 0};
  nn::Sequential net(layers(g, dtype));
  Tensor x = Tensor::empty({12, 3, 32, 32}, dtype, Tag::inputs);
  nn::fill_normal(x, g);
  x.set_requires_grad(true);
  nn::Adam adam(net.parameters(), 0.01);
  const Tensor y = checkpoint_sequential(net.functions(), 3, {x})[0];
  backward(mse_loss(y, Tensor::zeros(y.shape(), dtype)));
  adam.step();
  std::vector<std::uint64_t> hashes{tensor_hash(y), tensor_hash(x.grad())};
  for (const Tensor& p : net.parameters()) {
    hashes.push_back(tensor_hash(p));
    hashes.push_back(tensor_hash(p.grad()));
  }
  return hashes;
}

}  // namespace

TEST_CASE("shares cover a range once, begin at multiples, and respect the grain") {
  const Threads threads(GENERATE(1, 2, 3, 7));
  for (const std::int64_t count : {0, 1, 5, 63, 64, 65, 1000}) {
    for (const std::int64_t grain : {1, 10, 100}) {
      for (const std::int64_t multiple : {1, 3, 64}) {
        std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
        std::atomic<int> shares{0};
        std::atomic<bool> aligned{true};
        cpu::parallel(count, grain, multiple, [&](std::int64_t begin, std::int64_t end) {
          ++shares;
          if (begin % multiple != 0) aligned = false;
          for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
        bool once = true;
        for (const auto& v : visits) once = once && v == 1;
        CHECK(once);
        CHECK(aligned);
        CHECK(shares <= std::max<std::int64_t>(count / grain, 1));
      }
    }
  }
}

TEST_CASE("a job's shares are taken by any free thread") {
  const Threads threads(2);
  std::atomic<int> others{0};
  cpu::parallel(4, 1, 1, [&](std::int64_t begin, std::int64_t end) {
    if (begin != 0) {
      others += static_cast<int>(end - begin);
      return;
    }
    // Ends only when the other thread took all that is left.
    while (others != 4 - end) std::this_thread::yield();
  });
  CHECK(others == 3);
}

TEST_CASE("work that is shared out already is not shared again") {
  const Threads threads(3);
  std::atomic<int> inner{0};
  cpu::parallel(12, 1, 1, [&](std::int64_t begin, std::int64_t end) {
    if (cpu::threads() != 1) inner += 1000;
    for (std::int64_t i = begin; i < end; ++i) {
      cpu::parallel(5, 1, 1, [&](std::int64_t first, std::int64_t last) {
        inner += static_cast<int>(last - first);
      });
    }
  });
  CHECK(inner == 60);
  CHECK(cpu::threads() == 3);
  std::atomic<int> refused{0};
  cpu::parallel(1000, 1, 1, [&](std::int64_t, std::int64_t) {
    try {
      cpu::set_threads(2);
    } catch (const std::logic_error&) {
      ++refused;
    }
  });
  CHECK(refused > 0);
}

TEST_CASE("an exception of any share reaches the caller, and the threads work on") {
  const Threads threads(3);
  for (std::int64_t at = 0; at < 12; ++at) {
    const auto fail = [&](std::int64_t begin, std::int64_t end) {
      if (begin <= at && at < end) throw std::runtime_error(std::to_string(at));
    };
    CHECK_THROWS_WITH(cpu::parallel(12, 1, 1, fail), std::to_string(at));
    CHECK(cpu::threads() == 3);
    std::atomic<std::int64_t> done{0};
    cpu::parallel(12, 1, 1, [&](std::int64_t begin, std::int64_t end) { done += end - begin; });
    CHECK(done == 12);
  }
}

TEST_CASE("threads that help another one use its vectors") {
  const Threads threads(3);
  for (const cpu::Vectors v : cpu::testing::all_vectors()) {
    const cpu::VectorsScope scope(v);
    std::atomic<int> others{0};
    cpu::parallel(50, 1, 1, [&](std::int64_t, std::int64_t) {
      if (cpu::vectors() != v) ++others;
    });
    CHECK(others == 0);
  }
}

TEST_CASE("a training step has the same bits for every number of threads and all vectors") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const auto one = hashes_of_a_step(1, dtype);
    for (const cpu::Vectors v : cpu::testing::all_vectors()) {
      const cpu::VectorsScope scope(v);
      for (const int count : {1, 2, 3, 5}) CHECK(hashes_of_a_step(count, dtype) == one);
    }
  }
}

TEST_CASE("the number of threads belongs to the thread that set it") {
  const Threads threads(2);
  int other = 0;
  std::thread([&] { other = cpu::threads(); }).join();
  CHECK(other == 1);
  CHECK(cpu::threads() == 2);
  CHECK_THROWS_AS(cpu::set_threads(0), std::invalid_argument);
  CHECK_THROWS_AS(cpu::set_threads(257), std::invalid_argument);
  CHECK(cpu::threads() == 2);
}

}  // namespace rematch
