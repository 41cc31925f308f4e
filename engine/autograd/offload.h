#pragma once

#include <deque>
#include <memory>

#include "engine/autograd/saved_tensor.h"
#include "engine/memory/ledger.h"

namespace rematch {

/// How far the copies of an Offload run beside the computation. More overlaps more, and takes more
/// of the device: what is begun earlier and let go of later is live meanwhile.
struct OffloadOptions {
  /// Sources that are held at a time for copies out (>= 1).
  int copies_out = 1;
  /// Tensors that are copied back before backward asks for them: of those that are there, the ones
  /// saved last before the one that it has just asked for. Each is live from then until it is used,
  /// until backward turns out to go elsewhere, or until its graph is gone.
  int ahead = 0;
};

/// Keeps what the graph saves in host memory. See OffloadScope for its use.
///
/// A saved tensor is copied out and let go of; each use in a backward copies it into a new tensor
/// of the ambient ledger. Storage with an owner besides the graph would stay alive anyway and is
/// kept as without offload: that under Tag::parameters, state, inputs or gradients. So the live
/// bytes of ledger() are those that would be live under Tag::saved without offload.
///
/// A storage that is saved again, by another node or through a view, shares the copy that is there,
/// unless it was written in between: in-place ops count the storage's version up, and a copy holds
/// one version. Writes through data() count as no version, and are not seen.
///
/// An in-place write after the save is legal where the tensor was offloaded: backward uses the
/// values that were saved. A tensor that was kept is refused there, as without offload.
///
/// The sources of the latest copies, OffloadOptions says how many, are let go of late: when the
/// next copy is to be made, or by finish(). On a device the copies run beside the computation
/// meanwhile. The CPU keeps to the same rule, so that ledgers tell the same on either.
///
/// Belongs to one thread at a time, and may be destroyed before the graphs that it packed for.
class Offload final : public SavedTensorHooks {
 public:
  /// To a ledger of its own, of offload_memory_of() the ambient ledger's device.
  explicit Offload(const OffloadOptions& options = {});
  /// To `host`, whose memory is best offload_memory_of() the device; from other memory a copy of a
  /// device may make the host wait. Throws std::invalid_argument unless it is host memory, and for
  /// options that are out of range.
  explicit Offload(std::shared_ptr<Ledger> host, const OffloadOptions& options = {});
  ~Offload() override;
  Offload(const Offload&) = delete;
  Offload& operator=(const Offload&) = delete;

  /// Throws OutOfMemory when the host ledger has no room, cuda::DeviceError.
  std::unique_ptr<PackedTensor> pack(const Tensor& t) override;
  /// Lets go of the sources of the latest copies; the computation waits for the copies, the host
  /// does not.
  void finish() noexcept;

  /// The offloaded bytes, under Tag::saved.
  Ledger& ledger() const;

 private:
  void release_oldest() noexcept;

  struct Copies;
  class Copy;
  class OnHost;

  std::shared_ptr<Copies> copies_;
  /// With copies out of them under way, the oldest first.
  std::deque<std::shared_ptr<Storage>> sources_;
};

/// Offloads all that the graph saves while this is the innermost scope of hooks. The graph may be
/// used after the scope. Around a checkpoint() it offloads the segment's inputs; inside, what the
/// function saves, in its forward and in its recomputations.
class OffloadScope {
 public:
  explicit OffloadScope(Offload& offload) : offload_(offload), hooks_(&offload) {}
  ~OffloadScope() { offload_.finish(); }
  OffloadScope(const OffloadScope&) = delete;
  OffloadScope& operator=(const OffloadScope&) = delete;

 private:
  Offload& offload_;
  HookScope hooks_;
};

}  // namespace rematch
