#include "scenarios/stories/preserve_rng/replicas.h"

#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/nn/layers.h"
#include "engine/nn/optimizer.h"
#include "engine/ops/activation.h"
#include "engine/ops/dropout.h"
#include "engine/ops/loss.h"

namespace rematch::scenarios::replicas {
namespace {

constexpr std::int64_t kRows = 32;
constexpr std::int64_t kInputs = 8;
constexpr std::int64_t kHidden = 32;
constexpr std::uint64_t kSeed = 7;
constexpr std::uint64_t kDataSeed = 11;

class MaskLog final : public RunObserver {
 public:
  explicit MaskLog(std::vector<Mask>& masks) : masks_(masks) {}
  void on_draw(const Generator&, std::int64_t, std::span<const std::byte> drawn) override {
    masks_.push_back({ambient().recomputing, {drawn.begin(), drawn.end()}});
  }

 private:
  std::vector<Mask>& masks_;
};

/// A worker with its ambient state, which stays with it between the threads that run it.
class Worker {
 public:
  Worker(const Setup& setup, int rank)
      : mode_(setup.modes[static_cast<std::size_t>(rank)]), dropout_(setup.dropout) {
    state_.streams.seed(setup.own_seeds ? kSeed + static_cast<std::uint64_t>(rank) : kSeed);
    inside([&] {
      // Equal weights in every replica, data of its own.
      Generator weights{1, 0, 0};
      enter_ = std::make_unique<nn::Linear>(kInputs, kHidden, true, DType::float32, &weights);
      middle_ = std::make_unique<nn::Linear>(kHidden, kHidden, true, DType::float32, &weights);
      leave_ = std::make_unique<nn::Linear>(kHidden, 1, true, DType::float32, &weights);
      for (nn::Module* layer : {enter_.get(), middle_.get(), leave_.get()}) {
        parameters_.insert(parameters_.end(), layer->parameters().begin(),
                           layer->parameters().end());
      }
      optimizer_ = std::make_unique<nn::Sgd>(parameters_, setup.learning_rate);
      Generator data{kDataSeed, static_cast<std::uint64_t>(rank), 0};
      x_ = Tensor::empty({kRows, kInputs}, DType::float32, Tag::inputs);
      nn::fill_normal(x_, data);
      target_ = Tensor::empty({kRows, 1}, DType::float32, Tag::inputs);
      for (std::int64_t i = 0; i < kRows; ++i) {
        const float* row = x_.data<float>() + i * kInputs;
        target_.data<float>()[i] = row[0] * row[1] + row[2];
      }
    });
  }

  void forward_and_backward() {
    inside([&] {
      MaskLog log(result_.masks);
      ambient().observer = &log;
      optimizer_->zero_grad();
      backward(mse_loss(forward(true), target_));
      ambient().observer = nullptr;
    });
  }
  void step() {
    inside([&] { optimizer_->step(); });
  }
  double loss_without_dropout() {
    double loss = 0;
    inside([&] {
      const GradMode off(false);
      loss = mse_loss(forward(false), target_).item();
    });
    return loss;
  }

  Tensors& parameters() { return parameters_; }
  Replica& result() { return result_; }
  const Streams& streams() const { return state_.streams; }

 private:
  void inside(const std::function<void()>& work) {
    const AmbientScope scope(state_.ledger);
    std::swap(ambient().streams, state_.streams);
    work();
    std::swap(ambient().streams, state_.streams);
  }

  Tensor forward(bool train) {
    const Function region = [this, train](const Tensors& in) -> Tensors {
      return {rematch::tanh(middle_->forward(dropout(in[0], train ? dropout_ : 0)))};
    };
    const Tensors hidden{rematch::tanh(enter_->forward(x_))};
    CheckpointOptions options;
    options.preserve_rng = mode_.preserve_rng;
    options.reentrant = mode_.reentrant;
    return leave_->forward(
        (mode_.checkpointed ? checkpoint(region, hidden, options) : region(hidden))[0]);
  }

  Mode mode_;
  double dropout_;
  Ambient state_;
  std::unique_ptr<nn::Linear> enter_, middle_, leave_;
  Tensors parameters_;
  std::unique_ptr<nn::Sgd> optimizer_;
  Tensor x_, target_;
  Replica result_;
};

using Workers = std::vector<std::unique_ptr<Worker>>;

/// All replicas at once, each on a thread; the first error of any of them is thrown.
void in_parallel(const Workers& workers, const std::function<void(Worker&)>& work) {
  std::vector<std::exception_ptr> errors(workers.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          work(*workers[i]);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
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

std::vector<std::byte> bits_of(const Tensors& tensors, bool gradients) {
  std::vector<std::byte> bits;
  for (const Tensor& t : tensors) {
    const Tensor& read = gradients ? t.grad() : t;
    bits.insert(bits.end(), read.raw(), read.raw() + read.bytes());
  }
  return bits;
}

}  // namespace

Training train(const Setup& setup) {
  Workers workers;
  for (std::size_t i = 0; i < setup.modes.size(); ++i) {
    workers.push_back(std::make_unique<Worker>(setup, static_cast<int>(i)));
  }
  Training training;
  for (int step = 0; step < setup.steps; ++step) {
    in_parallel(workers, [](Worker& worker) { worker.forward_and_backward(); });
    average_gradients(workers);
    for (const auto& worker : workers) {
      if (step == 0) worker->result().gradients = bits_of(worker->parameters(), true);
    }
    in_parallel(workers, [](Worker& worker) { worker.step(); });
    if (!setup.evaluate) continue;
    double loss = 0;
    for (const auto& worker : workers) loss += worker->loss_without_dropout();
    training.losses.push_back(loss / static_cast<double>(workers.size()));
  }
  for (const auto& worker : workers) {
    worker->result().weights = bits_of(worker->parameters(), false);
    worker->result().random = worker->streams().states()[0];
    training.replicas.push_back(std::move(worker->result()));
  }
  return training;
}

}  // namespace rematch::scenarios::replicas
