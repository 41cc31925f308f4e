#include "scenarios/stories/preserve_rng/replicas.h"

#include <future>

#include "engine/nn/optimizer.h"
#include "engine/ops/loss.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::preserve_rng_story {
namespace {

constexpr std::int64_t kRows = 32;
constexpr std::int64_t kInputs = 8;
constexpr std::int64_t kHidden = 32;
constexpr std::uint64_t kSeed = 7;
constexpr std::uint64_t kDataSeed = 11;

std::vector<ModulePtr> layers(double dropout) {
  // Equal weights in every replica.
  Generator g{1, 0, 0};
  const ModulePtr tanh = activation(nn::ActivationKind::tanh);
  return {linear_layer(kInputs, kHidden, g),
          tanh,
          std::make_shared<nn::RandomLayer>(nn::RandomKind::dropout, dropout),
          linear_layer(kHidden, kHidden, g),
          tanh,
          linear_layer(kHidden, 1, g)};
}
/// From the dropout to the tanh behind the next layer.
constexpr Region kCheckpointed{2, 5};

/// A replica with its ambient state, which stays with it between the threads that run it.
class Worker final : public RunObserver {
 public:
  Worker(const Setup& setup, std::size_t rank) : mode_(setup.modes[rank]) {
    state_.streams.seed(setup.own_seeds ? kSeed + rank : kSeed);
    state_.observer = this;
    inside([&] {
      model_.emplace(layers(setup.dropout));
      optimizer_.emplace(model_->parameters(), setup.learning_rate);
      Generator data{kDataSeed, rank, 0};
      x_ = normal_input({kRows, kInputs}, data);
      target_ = Tensor::empty({kRows, 1}, DType::float32, Tag::inputs);
      for (std::int64_t i = 0; i < kRows; ++i) {
        const float* row = x_.data<float>() + i * kInputs;
        target_.data<float>()[i] = row[0] * row[1] + row[2];
      }
    });
  }

  void forward_and_backward() {
    inside([&] {
      optimizer_->zero_grad();
      backward(loss());
    });
  }
  void step() {
    inside([&] { optimizer_->step(); });
  }
  double loss_without_dropout() {
    double loss_now = 0;
    inside([&] {
      const GradMode off(false);
      model_->set_training(false);
      loss_now = loss().item();
      model_->set_training(true);
    });
    return loss_now;
  }
  void on_draw(const Generator&, std::int64_t, std::span<const std::byte> drawn) override {
    auto& masks = ambient().recomputing ? result.recomputed_masks : result.masks;
    masks.emplace_back(drawn.begin(), drawn.end());
  }

  const Tensors& parameters() const { return model_->parameters(); }
  const Streams& streams() const { return state_.streams; }

  Replica result;

 private:
  void inside(const std::function<void()>& work) {
    std::swap(ambient(), state_);
    work();
    std::swap(ambient(), state_);
  }

  Tensor loss() {
    const CheckpointOptions options{.reentrant = mode_.reentrant,
                                    .preserve_rng = mode_.preserve_rng};
    const std::span<const Region> regions(&kCheckpointed, mode_.checkpointed ? 1 : 0);
    return mse_loss(run_regions(model_->functions(), regions, x_, options), target_);
  }

  Mode mode_;
  Ambient state_;
  std::optional<nn::Sequential> model_;
  std::optional<nn::Sgd> optimizer_;
  Tensor x_, target_;
};

using Workers = std::vector<std::unique_ptr<Worker>>;

/// All replicas at once, each on a thread; the first error of any of them is thrown.
void in_parallel(const Workers& workers, void (Worker::*work)()) {
  std::vector<std::future<void>> running;
  for (const auto& worker : workers) {
    running.push_back(std::async(std::launch::async, work, worker.get()));
  }
  for (std::future<void>& one : running) one.get();
}

/// Every replica's gradients become their mean, summed in the order of the replicas.
void average_gradients(const Workers& workers) {
  for (std::size_t p = 0; p < workers[0]->parameters().size(); ++p) {
    const std::int64_t n = workers[0]->parameters()[p].elements();
    for (std::int64_t i = 0; i < n; ++i) {
      float total = 0;
      for (const auto& worker : workers) {
        total += worker->parameters()[p].grad().data<float>()[i];
      }
      for (const auto& worker : workers) {
        Tensor gradient = worker->parameters()[p].grad();
        gradient.data<float>()[i] = total / static_cast<float>(workers.size());
      }
    }
  }
}

}  // namespace

Training train(const Setup& setup) {
  Workers workers;
  for (std::size_t i = 0; i < setup.modes.size(); ++i) {
    workers.push_back(std::make_unique<Worker>(setup, i));
  }
  Training training;
  for (int step = 0; step < setup.steps; ++step) {
    in_parallel(workers, &Worker::forward_and_backward);
    average_gradients(workers);
    for (const auto& worker : workers) {
      if (step == 0) worker->result.gradients = bits_of(gradients_of(worker->parameters()));
    }
    in_parallel(workers, &Worker::step);
    if (!setup.evaluate) continue;
    double loss = 0;
    for (const auto& worker : workers) loss += worker->loss_without_dropout();
    training.losses.push_back(loss / static_cast<double>(workers.size()));
  }
  for (const auto& worker : workers) {
    worker->result.weights = bits_of(worker->parameters());
    worker->result.random = worker->streams().states()[0];
    training.replicas.push_back(std::move(worker->result));
  }
  return training;
}

}  // namespace rematch::scenarios::preserve_rng_story
