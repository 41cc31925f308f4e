#include "engine/autograd/offload.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/ambient/ambient.h"
#include "engine/backend/device.h"
#include "engine/cuda/runtime/offload.h"

namespace rematch {

/// Where copies are made, for each storage its latest one, and what is packed.
struct Offload::Copies {
  std::shared_ptr<Ledger> ledger;
  OffloadOptions options;
  std::unordered_map<const Storage*, Copy*> latest;
  /// In the order of saving.
  std::list<OnHost*> packed;
  /// Those of them that were fetched before they were asked for.
  std::vector<OnHost*> ahead;
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

  /// On a device beside the computation, until cuda::finish_copy().
  void begin_write_to(const Tensor& t) {
    if (t.device() == Device::cuda) {
      cuda::begin_copy_back(t.raw(), values_.data(), t.bytes());
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
  OnHost(std::shared_ptr<Copies> copies, std::shared_ptr<Copy> copy, const Tensor& t)
      : copies_(std::move(copies)), copy_(std::move(copy)), shape_(t.shape()), dtype_(t.dtype()) {
    place_ = copies_->packed.insert(copies_->packed.end(), this);
  }
  ~OnHost() override {
    (void)take();
    copies_->packed.erase(place_);
  }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;

  Tensor unpack() override {
    if (!ahead_.defined()) fetch();
    Tensor t = take();
    if (copies_->options.ahead > 0) fetch_ahead();
    return t;
  }

 private:
  void fetch() {
    Tensor t = Tensor::empty(shape_, dtype_);
    copy_->begin_write_to(t);
    ahead_ = std::move(t);
  }

  /// Hands the fetched tensor to the computation.
  Tensor take() noexcept {
    if (ahead_.defined() && ahead_.device() == Device::cuda) cuda::finish_copy(ahead_.raw());
    std::erase(copies_->ahead, this);
    return std::exchange(ahead_, Tensor());
  }

  /// Backward goes on with what was saved before this, most often.
  void fetch_ahead() {
    std::vector<OnHost*> next;
    const auto most = static_cast<std::size_t>(copies_->options.ahead);
    for (auto at = std::make_reverse_iterator(place_);
         at != copies_->packed.rend() && next.size() < most; ++at) {
      next.push_back(*at);
    }
    // Where it went elsewhere, blocks are given back before others are taken.
    for (OnHost* each : std::vector(copies_->ahead)) {
      if (std::find(next.begin(), next.end(), each) == next.end()) (void)each->take();
    }
    for (OnHost* each : next) {
      if (each->ahead_.defined()) continue;
      try {
        each->fetch();
      } catch (const OutOfMemory&) {
        // Then it is fetched when it is asked for.
        return;
      }
      copies_->ahead.push_back(each);
    }
  }

  std::shared_ptr<Copies> copies_;
  std::shared_ptr<Copy> copy_;
  Shape shape_;
  DType dtype_;
  std::list<OnHost*>::iterator place_;
  Tensor ahead_;
};

Offload::Offload(const OffloadOptions& options)
    : Offload(std::make_shared<Ledger>(offload_memory_of(ambient().ledger->device())), options) {}

Offload::Offload(std::shared_ptr<Ledger> host, const OffloadOptions& options)
    : copies_(std::make_shared<Copies>()) {
  if (host == nullptr || host->device() != Device::cpu) {
    throw std::invalid_argument(
        "[offload] a ledger of host memory expected, got " +
        (host == nullptr ? "none" : std::string(to_string(host->device()))));
  }
  if (options.copies_out < 1 || options.ahead < 0) {
    throw std::invalid_argument("[offload] copies_out >= 1 and ahead >= 0 expected, got " +
                                std::to_string(options.copies_out) + " and " +
                                std::to_string(options.ahead));
  }
  copies_->ledger = std::move(host);
  copies_->options = options;
}

Offload::~Offload() { finish(); }

std::unique_ptr<PackedTensor> Offload::pack(const Tensor& t) {
  const std::shared_ptr<Storage>& storage = t.storage();
  if (!storage->temporary()) return nullptr;
  const auto latest = copies_->latest.find(storage.get());
  if (latest != copies_->latest.end() && latest->second->is_of(storage)) {
    return std::make_unique<OnHost>(copies_, latest->second->shared_from_this(), t);
  }
  while (sources_.size() >= static_cast<std::size_t>(copies_->options.copies_out)) {
    release_oldest();
  }
  auto copy = std::make_shared<Copy>(copies_, storage);
  sources_.push_back(storage);
  copy->begin(*storage);
  return std::make_unique<OnHost>(copies_, std::move(copy), t);
}

void Offload::release_oldest() noexcept {
  Storage& source = *sources_.front();
  if (source.device() == Device::cuda) cuda::finish_copy(source.data());
  sources_.pop_front();
}

void Offload::finish() noexcept {
  while (!sources_.empty()) release_oldest();
}

Ledger& Offload::ledger() const { return *copies_->ledger; }

}  // namespace rematch
