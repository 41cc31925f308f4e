#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "engine/cuda/runtime/move_many.h"
#include "engine/math/bfloat16.h"

namespace rematch::cuda {

/// Small writes to device memory that wait on the host for other work: stream() starts them before
/// it hands out the stream, so nothing that is queued there can tell. Those that come one after the
/// other, such as the parameters of a model or the zeros of an optimizer's state, are one copy and
/// one launch, and so are the casts of a product's operands.
class Deferred {
 public:
  /// Larger writes gain nothing from company.
  static constexpr std::int64_t kLargest = std::int64_t{1} << 16;

  /// The bytes of `pattern` over and over, from its lowest one on.
  void fill(void* to, std::int64_t bytes, std::uint64_t pattern) noexcept;
  void copy(void* to, const void* from, std::int64_t bytes) noexcept;
  void upcast(float* to, const math::BFloat16* from, std::int64_t n) noexcept;
  void downcast(math::BFloat16* to, const float* from, std::int64_t n) noexcept;
  template <typename T>
  void add(T* to, const T* from, std::int64_t n) noexcept {
    push({MoveKind::add, dtype_of<T>(), to, from, n * static_cast<std::int64_t>(sizeof(T)), 0});
  }
  /// At most kLargest bytes, which are taken from `host` now.
  void upload(void* to, const void* host, std::int64_t bytes);

  /// For the next thread that uses the context.
  void forget_failure() noexcept { failed_ = nullptr; }

  [[nodiscard]] bool empty() const { return moves_.empty(); }
  /// Queues all; rethrow() throws what goes wrong.
  void start() noexcept;
  void rethrow() {
    if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
  }

 private:
  void push(const Move& move) noexcept;
  void start_all();

  std::vector<Move> moves_;
  /// Places of uploads in staged_.
  struct Upload {
    std::size_t move;
    std::size_t at;
  };
  std::vector<Upload> uploads_;
  std::vector<std::byte> staged_;
  std::exception_ptr failed_;
};

}  // namespace rematch::cuda
