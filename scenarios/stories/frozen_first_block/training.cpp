#include "scenarios/stories/frozen_first_block/training.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/tensor_hash.h"
#include "engine/ops/loss.h"
#include "scenarios/stories/frozen_first_block/pictures.h"

namespace rematch::scenarios::frozen {
namespace {

constexpr double kLearningRate = 1e-3;
constexpr std::int64_t kScoreBatch = 50;

/// The training's own ambient state for a scope: its ledger, and its random streams from where it
/// left them.
class Turn {
 public:
  Turn(const std::shared_ptr<Ledger>& ledger, Streams& streams) : scope_(ledger), kept_(streams) {
    ambient().streams = streams;
  }
  ~Turn() { std::swap(kept_, ambient().streams); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  AmbientScope scope_;
  Streams& kept_;
};

/// Evaluation mode for a scope.
class Evaluation {
 public:
  explicit Evaluation(Network& network) : network_(network) { network_.set_training(false); }
  ~Evaluation() { network_.set_training(true); }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

 private:
  Network& network_;
};

}  // namespace

Training::Training(Wiring wiring, std::uint64_t seed)
    : wiring_(std::move(wiring)), ledger_(std::make_shared<Ledger>()), streams_(seed) {
  const Turn turn(ledger_, streams_);
  network_ = std::make_unique<Network>(wiring_, seed);
  optimizer_ = std::make_unique<nn::Adam>(network_->parameters(), kLearningRate);
}

Training::~Training() = default;

Step Training::step(std::span<const std::int64_t> numbers) {
  const Turn turn(ledger_, streams_);
  Batch batch = make_batch(numbers);
  batch.pictures.set_requires_grad(wiring_.input_requires_grad);
  const std::int64_t warnings_before = frozen_checkpoint_warnings();
  const int runs_before[2] = {network_->executions(0), network_->executions(1)};

  const Tensor loss = cross_entropy(network_->forward(batch.pictures), batch.labels);
  Step result;
  result.loss = loss.item();
  result.saved_bytes = ledger_->live(Tag::saved);
  backward(loss);
  const Tensors& parameters = network_->parameters();
  for (std::size_t i = 0; i < 2; ++i) {
    const auto first =
        parameters.begin() + static_cast<std::ptrdiff_t>(i * Network::kBlockParameters);
    result.gradients[i] =
        static_cast<int>(std::count_if(first, first + Network::kBlockParameters,
                                       [](const Tensor& p) { return p.grad().defined(); }));
    result.executions[i] = network_->executions(static_cast<int>(i)) - runs_before[i];
  }
  result.warnings = frozen_checkpoint_warnings() - warnings_before;
  optimizer_->step();
  optimizer_->zero_grad();
  return result;
}

std::optional<Score> Training::score(std::int64_t begin, std::int64_t count,
                                     const std::function<bool(std::int64_t)>& scored) {
  const Turn turn(ledger_, streams_);
  const GradMode no_grad(false);
  const Evaluation evaluation(*network_);
  Score result;
  std::int64_t right = 0;
  for (std::int64_t first = 0; first < count; first += kScoreBatch) {
    const std::int64_t rows = std::min(kScoreBatch, count - first);
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(rows));
    std::iota(numbers.begin(), numbers.end(), begin + first);
    const Batch batch = make_batch(numbers);
    const Tensor y = network_->forward(batch.pictures);
    result.loss += cross_entropy(y, batch.labels).item() * static_cast<double>(rows);
    const std::int64_t classes = y.shape()[1];
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* row = y.data<float>() + i * classes;
      const auto best = std::max_element(row, row + classes) - row;
      right += best == batch.labels.data<std::int32_t>()[i] ? 1 : 0;
    }
    if (!scored(rows)) return std::nullopt;
  }
  result.loss /= static_cast<double>(count);
  result.accuracy = static_cast<double>(right) / static_cast<double>(count);
  return result;
}

std::int64_t different_elements(std::span<const Tensor> a, std::span<const Tensor> b) {
  std::int64_t different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto* x = a[i].data<float>();
    const auto* y = b[i].data<float>();
    for (std::int64_t e = 0; e < a[i].elements(); ++e) {
      different += std::bit_cast<std::uint32_t>(x[e]) != std::bit_cast<std::uint32_t>(y[e]) ? 1 : 0;
    }
  }
  return different;
}

std::uint64_t hash_of(std::span<const Tensor> tensors) {
  std::uint64_t hash = 0;
  for (const Tensor& t : tensors) hash = hash * 31 + tensor_hash(t);
  return hash;
}

}  // namespace rematch::scenarios::frozen
