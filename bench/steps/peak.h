#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/memory/ledger.h"
#include "engine/tensor/tensor.h"

namespace rematch::bench {

/// Everything that was alive at the peak.
struct Peak {
  std::int64_t bytes = 0;
  std::array<std::int64_t, kTagCount> by_tag{};
  /// The allocation that made it the peak, and what that was for at first.
  std::int64_t allocated = 0;
  Tag allocated_for = Tag::temporaries;
  /// Place at which it was made: "backward of layer 3 (conv2d)".
  std::string place;
};

/// Follows a ledger through one step, from its construction on. The places are told to it.
class PeakWatch {
 public:
  /// `layers` are the names of the layers; both live longer than this.
  PeakWatch(Ledger& ledger, const std::vector<std::string>& layers);
  ~PeakWatch();
  PeakWatch(const PeakWatch&) = delete;
  PeakWatch& operator=(const PeakWatch&) = delete;

  void enter(int layer);
  /// The layer's function has ended, or was stopped.
  void leave();
  /// `y` is what the layer made: when its gradient arrives, the layer's backward begins.
  void made(int layer, Tensor y);
  void enter_loss();
  void begin_backward();

  /// Throws std::logic_error when the ledger's events do not add up to what it holds by tag.
  Peak peak() const;

 private:
  enum class Kind : std::uint8_t { begin, forward, loss, loss_backward, recomputation, backward };
  static std::int32_t label_of(Kind kind, int layer);
  std::string place_of(std::int32_t label) const;

  Ledger& ledger_;
  const std::vector<std::string>& layers_;
  std::array<std::int64_t, kTagCount> before_{};
  std::int64_t live_before_ = 0;
  bool is_backward_ = false;
  /// Layer of the backward that continues after a recomputation.
  std::int32_t backward_label_ = 0;
};

}  // namespace rematch::bench
