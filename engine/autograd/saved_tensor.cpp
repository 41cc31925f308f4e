#include "engine/autograd/saved_tensor.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "engine/ambient/ambient.h"

namespace rematch {
namespace {

class PackedByFunction final : public PackedTensor {
 public:
  PackedByFunction(Tensor kept, const std::function<Tensor(const Tensor&)>& unpack)
      : kept_(std::move(kept)), unpack_(unpack) {
    kept_.storage()->hold();
  }
  ~PackedByFunction() override { kept_.storage()->drop(); }
  Tensor unpack() override { return unpack_(kept_); }

 private:
  Tensor kept_;
  std::function<Tensor(const Tensor&)> unpack_;
};

}  // namespace

HookScope::HookScope(SavedTensorHooks* hooks) : previous_(ambient().hooks) {
  ambient().hooks = hooks;
}
HookScope::~HookScope() { ambient().hooks = previous_; }

std::unique_ptr<PackedTensor> FunctionHooks::pack(const Tensor& t) {
  return std::make_unique<PackedByFunction>(pack_(t), unpack_);
}

void SavedTensor::save(const Tensor& t) {
  reset();
  if (RunObserver* observer = ambient().observer) observer->on_save(t);
  Tensor values = t.detach();
  if (SavedTensorHooks* hooks = ambient().hooks) {
    packed_ = hooks->pack(values);
    if (packed_) return;
  }
  tensor_ = std::move(values);
  version_ = t.version();
  tensor_.storage()->hold();
}

Tensor SavedTensor::get(std::string_view node) const {
  if (packed_) return packed_->unpack();
  if (!tensor_.defined()) {
    throw std::logic_error("[" + std::string(node) + "] a saved tensor was read that is not there");
  }
  if (tensor_.version() != version_) {
    throw std::runtime_error(
        "[" + std::string(node) + "] saved tensor of shape " + to_string(tensor_.shape()) +
        " was changed by an in-place operation: version " + std::to_string(version_) +
        " expected, got " + std::to_string(tensor_.version()) +
        "; clone() it before the in-place write");
  }
  return tensor_;
}

void SavedTensor::reset() noexcept {
  if (tensor_.defined()) {
    tensor_.storage()->drop();
    tensor_ = Tensor();
  }
  packed_.reset();
}

SavedTensor::SavedTensor(SavedTensor&& other) noexcept
    : tensor_(std::exchange(other.tensor_, Tensor())),
      packed_(std::move(other.packed_)),
      version_(other.version_) {}

SavedTensor& SavedTensor::operator=(SavedTensor&& other) noexcept {
  if (this != &other) {
    reset();
    tensor_ = std::exchange(other.tensor_, Tensor());
    packed_ = std::move(other.packed_);
    version_ = other.version_;
  }
  return *this;
}

}  // namespace rematch
