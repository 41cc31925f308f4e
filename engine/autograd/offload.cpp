#include "engine/autograd/offload.h"

#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "engine/ambient/ambient.h"
#include "engine/backend/device.h"
#include "engine/cuda/offload.h"

namespace rematch {

/// Where copies are made, and for each storage its latest one.
struct Offload::Copies {
  std::shared_ptr<Ledger> ledger;
  std::unordered_map<const Storage*, Copy*> latest;
};

/// The values of one version of a storage.
class Offload::Copy : public std::enable_shared_from_this<Copy> {
 public:
  Copy(std::shared_ptr<Copies> copies, const std::shared_ptr<Storage>& source)
      : copies_(std::move(copies)),
        source_(source),
        key_(source.get()),
        version_(source->version()),
        values_(copies_->ledger, source->bytes(), Tag::saved) {
    copies_->latest[key_] = this;
  }
  ~Copy() {
    const auto mine = copies_->latest.find(key_);
    if (mine != copies_->latest.end() && mine->second == this) copies_->latest.erase(mine);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  /// Another storage may have come to lie where the source was.
  bool is_of(const std::shared_ptr<Storage>& storage) const {
    return source_.lock() == storage && version_ == storage->version();
  }

  void begin(Storage& source) {
    if (source.device() == Device::cuda) {
      cuda::begin_copy_out(values_.data(), source.data(), source.bytes());
    } else {
      values_.memory().copy_in(values_.data(), source.data(), source.bytes());
    }
  }

  void write_to(const Tensor& t) {
    if (t.device() == Device::cuda) {
      cuda::copy_back(t.raw(), values_.data(), t.bytes());
    } else {
      values_.memory().copy_out(t.raw(), values_.data(), t.bytes());
    }
  }

 private:
  std::shared_ptr<Copies> copies_;
  std::weak_ptr<Storage> source_;
  const Storage* key_;
  std::uint64_t version_;
  Storage values_;
};

class Offload::OnHost final : public PackedTensor {
 public:
  OnHost(std::shared_ptr<Copy> copy, const Tensor& t)
      : copy_(std::move(copy)), shape_(t.shape()), dtype_(t.dtype()) {}
  Tensor unpack() override {
    Tensor t = Tensor::empty(shape_, dtype_);
    copy_->write_to(t);
    return t;
  }

 private:
  std::shared_ptr<Copy> copy_;
  Shape shape_;
  DType dtype_;
};

Offload::Offload()
    : Offload(std::make_shared<Ledger>(offload_memory_of(ambient().ledger->device()))) {}

Offload::Offload(std::shared_ptr<Ledger> host) : copies_(std::make_shared<Copies>()) {
  if (host == nullptr || host->device() != Device::cpu) {
    throw std::invalid_argument(
        "[offload] a ledger of host memory expected, got " +
        (host == nullptr ? "none" : std::string(to_string(host->device()))));
  }
  copies_->ledger = std::move(host);
}

Offload::~Offload() { finish(); }

std::unique_ptr<PackedTensor> Offload::pack(const Tensor& t) {
  const std::shared_ptr<Storage>& storage = t.storage();
  if (!storage->temporary()) return nullptr;
  const auto latest = copies_->latest.find(storage.get());
  if (latest != copies_->latest.end() && latest->second->is_of(storage)) {
    return std::make_unique<OnHost>(latest->second->shared_from_this(), t);
  }
  finish();
  auto copy = std::make_shared<Copy>(copies_, storage);
  source_ = storage;
  copy->begin(*storage);
  return std::make_unique<OnHost>(std::move(copy), t);
}

void Offload::finish() noexcept {
  if (source_ == nullptr) return;
  if (source_->device() == Device::cuda) cuda::finish_copy_out();
  source_.reset();
}

Ledger& Offload::ledger() const { return *copies_->ledger; }

}  // namespace rematch
