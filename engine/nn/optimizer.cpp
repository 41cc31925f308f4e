#include "engine/nn/optimizer.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/autograd/node.h"
#include "engine/kernels/optimizer.h"
#include "engine/math/update.h"
#include "engine/tensor/dispatch.h"
#include "engine/tensor/kernel.h"

namespace rematch::nn {

namespace {

/// A step is made of the parameters of one type, then of those of the other.
template <class Body>
void for_each_dtype(const Body& body) {
  body.template operator()<float>(DType::float32);
  body.template operator()<double>(DType::float64);
}

}  // namespace

Optimizer::Optimizer(Tensors parameters) : parameters_(std::move(parameters)) {
  // Steps of one parameter twice, be it by another handle, would race with each other.
  std::vector<const std::byte*> seen;
  seen.reserve(parameters_.size());
  for (const Tensor& p : parameters_) {
    for_floating(p.dtype(), "optimizer", []<class T>() {});
    if (p.elements() > 0) seen.push_back(p.raw());
  }
  std::sort(seen.begin(), seen.end());
  if (std::adjacent_find(seen.begin(), seen.end()) != seen.end()) {
    throw std::invalid_argument("[optimizer] a parameter was given twice; give each once");
  }
}

template <class Body>
void Optimizer::for_gradients_of(DType dtype, const Body& body) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& p = parameters_[i];
    if (!p.grad().defined() || p.dtype() != dtype) continue;
    p.storage()->before_write();
    body(i, p);
    mark_written(p);
  }
}

void Optimizer::zero_grad() {
  for (Tensor& p : parameters_) p.set_grad(Tensor());
}

Sgd::Sgd(Tensors parameters, double lr, double momentum)
    : Optimizer(std::move(parameters)),
      lr_(lr),
      momentum_(momentum),
      buffers_(parameters_.size()) {}

Tensors Optimizer::missing(const Tensors& state) const {
  Tensors made(state.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    const Tensor& p = parameters_[i];
    if (!p.grad().defined() || state[i].defined()) continue;
    made[i] = Tensor::zeros(p.shape(), p.dtype(), Tag::state);
  }
  return made;
}

void Sgd::step() {
  Tensors fresh = momentum_ != 0 ? missing(buffers_) : Tensors(buffers_.size());
  for_each_dtype([&]<class T>(DType dtype) {
    std::vector<math::SgdItem<T>> items;
    for_gradients_of(dtype, [&](std::size_t i, Tensor& p) {
      const bool first = fresh[i].defined();
      if (first) buffers_[i] = std::move(fresh[i]);
      T* const buffer = buffers_[i].defined() ? buffers_[i].template data<T>() : nullptr;
      items.push_back(
          {p.elements(), first, p.grad().template data<T>(), buffer, p.template data<T>()});
    });
    if (items.empty()) return;
    REMATCH_KERNEL(parameters_[0], sgd_steps<T>, items, static_cast<T>(lr_),
                   static_cast<T>(momentum_));
  });
}

class Adam::Counts {
 public:
  Counts(MemoryResource& memory, std::size_t count)
      : memory_(memory), bytes_(static_cast<std::int64_t>(count * sizeof(std::int64_t))) {
    const std::vector<std::int64_t> zeros(count);
    block_ = static_cast<std::int64_t*>(memory_.allocate(bytes_));
    if (block_ == nullptr) {
      throw OutOfMemory("[adam] out of memory: " + std::string(memory_.name()) + " refused " +
                        std::to_string(bytes_) + " bytes");
    }
    memory_.copy_in(block_, zeros.data(), bytes_);
  }
  ~Counts() { memory_.release(block_, bytes_); }
  Counts(const Counts&) = delete;
  Counts& operator=(const Counts&) = delete;
  std::int64_t* at(std::size_t i) { return block_ + i; }

 private:
  MemoryResource& memory_;
  std::int64_t bytes_;
  std::int64_t* block_;
};

Adam::~Adam() = default;

Adam::Adam(Tensors parameters, double lr, double beta1, double beta2, double eps)
    : Optimizer(std::move(parameters)),
      lr_(lr),
      beta1_(beta1),
      beta2_(beta2),
      eps_(eps),
      first_(parameters_.size()),
      second_(parameters_.size()) {}

void Adam::step() {
  Tensors first = missing(first_);
  Tensors second = missing(second_);
  if (steps_ == nullptr && !parameters_.empty()) {
    // The parameters keep the memory alive.
    steps_ = std::make_unique<Counts>(parameters_[0].storage()->memory(), parameters_.size());
  }
  for_each_dtype([&]<class T>(DType dtype) {
    std::vector<math::AdamItem<T>> items;
    for_gradients_of(dtype, [&](std::size_t i, Tensor& p) {
      if (first[i].defined()) {
        first_[i] = std::move(first[i]);
        second_[i] = std::move(second[i]);
      }
      items.push_back({p.elements(), steps_->at(i), p.grad().template data<T>(),
                       first_[i].template data<T>(), second_[i].template data<T>(),
                       p.template data<T>()});
    });
    if (items.empty()) return;
    REMATCH_KERNEL(parameters_[0], adam_steps<T>, items, lr_, beta1_, beta2_, eps_);
  });
}

}  // namespace rematch::nn
