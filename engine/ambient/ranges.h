#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <type_traits>

namespace rematch {

/// Is told what runs, range by range; a profiler's timeline, for one. Called by every thread. Must
/// not throw.
class RangeListener {
 public:
  virtual ~RangeListener() = default;
  virtual void begin(const std::string& name) noexcept = 0;
  /// Ends the calling thread's latest range.
  virtual void end() noexcept = 0;
};

namespace detail {
inline std::atomic<RangeListener*> range_listener{nullptr};
}

/// The process's listener; nullptr: none. A range tells the one that was there when it began, so
/// that one must outlive it.
inline void set_range_listener(RangeListener* listener) {
  detail::range_listener.store(listener, std::memory_order_release);
}

/// A range of the time that it lives: a layer's forward, a recomputation, a node's backward.
/// Without a listener it costs one load; its name is made only for a listener.
class Range {
 public:
  template <typename Name>
  requires std::is_invocable_r_v<std::string, Name>
  explicit Range(const Name& name)
      : listener_(detail::range_listener.load(std::memory_order_acquire)) {
    if (listener_ != nullptr) listener_->begin(name());
  }
  explicit Range(std::string_view name) : Range([=] { return std::string(name); }) {}
  ~Range() {
    if (listener_ != nullptr) listener_->end();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  RangeListener* listener_;
};

}  // namespace rematch
