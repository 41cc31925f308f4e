#include "engine/cuda/runtime/deferred.h"

#include <algorithm>
#include <utility>

#include "engine/cuda/runtime/context.h"
#include "engine/cuda/runtime/staging.h"

namespace rematch::cuda {

namespace {

constexpr std::size_t kAlignment = 64;
static_assert(Deferred::kLargest <= kMostStaged);

bool overlap(const void* a, std::int64_t a_bytes, const void* b, std::int64_t b_bytes) {
  if (a == nullptr || b == nullptr) return false;
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  return first < second + static_cast<std::uintptr_t>(b_bytes) &&
         second < first + static_cast<std::uintptr_t>(a_bytes);
}

/// Whether the order of the two matters.
bool conflict(const Move& a, const Move& b) {
  return overlap(a.to, a.bytes, b.to, b.bytes) ||
         overlap(a.to, a.bytes, b.from, b.source_bytes()) ||
         overlap(a.from, a.source_bytes(), b.to, b.bytes);
}

}  // namespace

void Deferred::push(const Move& move) noexcept {
  if (move.bytes == 0) return;
  const bool must_wait = std::any_of(moves_.begin(), moves_.end(),
                                     [&](const Move& other) { return conflict(move, other); });
  // A launch gives each of its moves as many thread blocks as the longest one needs.
  const bool is_long = move.bytes > kLargest;
  if (must_wait || is_long || moves_.size() == kMoves) start();
  moves_.push_back(move);
  if (is_long) start();
}

void Deferred::fill(void* to, std::int64_t bytes, std::uint64_t pattern) noexcept {
  push({MoveKind::fill, {}, to, nullptr, bytes, pattern});
}

void Deferred::copy(void* to, const void* from, std::int64_t bytes) noexcept {
  push({MoveKind::copy, {}, to, from, bytes, 0});
}

void Deferred::upcast(float* to, const math::BFloat16* from, std::int64_t n) noexcept {
  push({MoveKind::upcast, {}, to, from, n * static_cast<std::int64_t>(sizeof(float)), 0});
}

void Deferred::downcast(math::BFloat16* to, const float* from, std::int64_t n) noexcept {
  push(
      {MoveKind::downcast, {}, to, from, n * static_cast<std::int64_t>(sizeof(math::BFloat16)), 0});
}

void Deferred::upload(void* to, const void* host, std::int64_t bytes) {
  if (bytes == 0) return;
  const auto size = static_cast<std::size_t>(bytes);
  if (staged_.size() + kAlignment + size > kMostStaged) start();
  // Nothing below is to fail half-way.
  staged_.reserve(kMostStaged);
  uploads_.reserve(kMoves);
  push({MoveKind::copy, {}, to, nullptr, bytes, 0});
  const std::size_t at = (staged_.size() + kAlignment - 1) / kAlignment * kAlignment;
  uploads_.push_back({moves_.size() - 1, at});
  staged_.resize(at + size);
  const auto* const from = static_cast<const std::byte*>(host);
  std::copy(from, from + size, staged_.begin() + static_cast<std::ptrdiff_t>(at));
}

void Deferred::start() noexcept {
  try {
    start_all();
  } catch (...) {
    // The first is nearest to the cause.
    if (!failed_) failed_ = std::current_exception();
  }
  moves_.clear();
  uploads_.clear();
  staged_.clear();
}

void Deferred::start_all() {
  // Taken away first: what is called here asks for the stream as well.
  std::vector<Move> moves = std::exchange(moves_, {});
  if (uploads_.size() == 1) {
    const Move& only = moves[uploads_[0].move];
    copy_to_device(only.to, staged_.data(), only.bytes);
    moves.erase(moves.begin() + static_cast<std::ptrdiff_t>(uploads_[0].move));
  } else if (!uploads_.empty()) {
    auto* const arena = static_cast<std::byte*>(workspace(staged_.size(), Scratch::uploads));
    copy_to_device(arena, staged_.data(), static_cast<std::int64_t>(staged_.size()));
    for (const Upload& upload : uploads_) moves[upload.move].from = arena + upload.at;
  }
  move_many(moves, context().stream);
  check(cudaGetLastError(), "move_many");
  moves.clear();
  // Its memory serves again.
  moves_ = std::move(moves);
}

}  // namespace rematch::cuda
