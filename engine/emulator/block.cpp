#include "engine/emulator/block.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

// Saves what a call keeps (System V ABI, x86-64) on the stack that it leaves, and goes on where the
// other stack was left.
extern "C" void rematch_emulator_switch(void** left, void* entered);
asm(R"(
  .text
  .globl rematch_emulator_switch
  .type rematch_emulator_switch, @function
rematch_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size rematch_emulator_switch, . - rematch_emulator_switch
)");

namespace rematch::emulator {

namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;
constexpr std::size_t kStackBytes = std::size_t{64} << 10;
constexpr std::size_t kMostExchanged = 16;
constexpr int kSavedRegisters = 6;

[[noreturn]] void undefined(std::string_view why) {
  std::fprintf(stderr, "emulated device: block %u, thread %u: %.*s, which CUDA leaves undefined\n",
               place.block.x, place.thread.x, static_cast<int>(why.size()), why.data());
  std::abort();
}

bool descending() {
  static const bool turned = [] {
    const char* const order = std::getenv("REMATCH_EMULATOR_ORDER");
    return order != nullptr && std::string_view(order) == "descending";
  }();
  return turned;
}

enum class State : std::uint8_t { fresh, ready, waiting, ended };

class Block {
 public:
  void run(unsigned threads, const std::function<void()>& body);
  void sync_threads();
  void meet(unsigned mask, std::size_t bytes);
  void exchange(unsigned mask, unsigned source, const void* mine, void* theirs, std::size_t bytes);

 private:
  struct Fiber {
    std::unique_ptr<std::byte[]> stack;
    void* top = nullptr;
    State state = State::fresh;
    // Bytes that it offers and reads in a shuffle.
    std::array<std::byte, kMostExchanged> offered{};
    unsigned source = 0;
    void* theirs = nullptr;
  };
  /// Lanes of one warp that wait for each other.
  struct Meeting {
    unsigned warp;
    unsigned lanes;
    /// Size of what they shuffle; 0 if they just meet.
    std::size_t bytes;
    unsigned arrived;
  };

  static void enter();
  void resume(unsigned thread);
  void resume_last();
  void wait();
  void release(unsigned thread);
  void release_all();

  std::vector<Fiber> fibers_ = std::vector<Fiber>(kMostThreads);
  const std::function<void()>* body_ = nullptr;
  void* scheduler_ = nullptr;
  unsigned current_ = 0;
  unsigned alive_ = 0;
  unsigned size_ = 0;
  unsigned at_barrier_ = 0;
  std::vector<Meeting> meetings_;
  /// Threads that may go on, and those whose turn it is.
  std::vector<unsigned> ready_;
  std::vector<unsigned> running_;
};

Block& block() {
  // Reached through a pointer that needs no guard, for every shuffle comes here.
  static thread_local constinit Block* mine = nullptr;
  if (mine == nullptr) {
    static thread_local std::unique_ptr<Block> owner;
    owner = std::make_unique<Block>();
    mine = owner.get();
  }
  return *mine;
}

void Block::enter() {
  Block& b = block();
  (*b.body_)();
  Fiber& fiber = b.fibers_[b.current_];
  fiber.state = State::ended;
  rematch_emulator_switch(&fiber.top, b.scheduler_);
}

void Block::resume(unsigned thread) {
  Fiber& fiber = fibers_[thread];
  current_ = thread;
  place.thread.x = thread;
  if (fiber.state == State::fresh) {
    if (fiber.stack == nullptr) fiber.stack = std::make_unique<std::byte[]>(kStackBytes);
    // As if enter() had been called and had switched away at once: its address, above the saved
    // registers, 8 bytes below a multiple of 16, which is what the ABI promises to a function.
    auto end = std::bit_cast<std::uintptr_t>(fiber.stack.get() + kStackBytes);
    auto** top = std::bit_cast<void**>((end & ~std::uintptr_t{15}) - 8);
    *--top = std::bit_cast<void*>(&Block::enter);
    top -= kSavedRegisters;
    std::memset(static_cast<void*>(top), 0, kSavedRegisters * sizeof(void*));
    fiber.top = static_cast<void*>(top);
  }
  fiber.state = State::ready;
  rematch_emulator_switch(&scheduler_, fiber.top);
  if (fiber.state != State::ended) return;
  --alive_;
  // Those who have ended count as arrived.
  if (at_barrier_ > 0 && at_barrier_ == alive_) release_all();
}

void Block::resume_last() {
  const unsigned thread = ready_.back();
  ready_.pop_back();
  resume(thread);
}

void Block::run(unsigned threads, const std::function<void()>& body) {
  body_ = &body;
  size_ = threads;
  alive_ = threads;
  for (unsigned t = 0; t < threads; ++t) fibers_[t].state = State::fresh;
  for (unsigned k = 0; k < threads; ++k) {
    resume(descending() ? threads - 1 - k : k);
    // A thread that can continue does so first, and gets ahead of the others as far as barriers
    // allow.
    while (descending() && !ready_.empty()) resume_last();
  }
  while (alive_ > 0) {
    if (ready_.empty()) undefined("threads wait for others that have ended or wait elsewhere");
    if (descending()) {
      resume_last();
      continue;
    }
    std::swap(ready_, running_);
    for (const unsigned t : running_) resume(t);
    running_.clear();
  }
}

void Block::wait() {
  Fiber& fiber = fibers_[current_];
  fiber.state = State::waiting;
  rematch_emulator_switch(&fiber.top, scheduler_);
}

void Block::release(unsigned thread) {
  fibers_[thread].state = State::ready;
  ready_.push_back(thread);
}

/// All live threads have arrived, so none waits in a meeting.
void Block::release_all() {
  at_barrier_ = 0;
  for (unsigned t = 0; t < size_; ++t) {
    if (fibers_[t].state == State::waiting) release(t);
  }
}

void Block::sync_threads() {
  if (++at_barrier_ == alive_) return release_all();
  wait();
}

void Block::meet(unsigned mask, std::size_t bytes) {
  const unsigned warp = current_ / kWarp;
  const unsigned lane = current_ % kWarp;
  if ((mask >> lane & 1U) == 0) undefined("a mask without the calling lane");
  const unsigned there = std::min(size_ - warp * kWarp, kWarp);
  if (there < kWarp && mask >> there != 0) undefined("a mask with lanes that the block has not");
  auto meeting = meetings_.begin();
  while (meeting != meetings_.end() && (meeting->warp != warp || meeting->lanes != mask)) ++meeting;
  if (meeting == meetings_.end()) meeting = meetings_.insert(meeting, {warp, mask, bytes, 0});
  if (meeting->bytes != bytes) undefined("lanes of one mask at different places");
  meeting->arrived |= 1U << lane;
  if (meeting->arrived != mask) return wait();
  meetings_.erase(meeting);
  // The last lane distributes the values, so that no lane can offer again before all have theirs.
  Fiber* const lanes = &fibers_[std::size_t{warp} * kWarp];
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    Fiber& each = lanes[std::countr_zero(rest)];
    if (bytes > 0) std::memcpy(each.theirs, lanes[each.source].offered.data(), bytes);
    if (each.state == State::waiting)
      release(warp * kWarp + static_cast<unsigned>(std::countr_zero(rest)));
  }
}

void Block::exchange(unsigned mask, unsigned source, const void* mine, void* theirs,
                     std::size_t bytes) {
  if ((mask >> source & 1U) == 0) undefined("a shuffle from a lane that is not in the mask");
  Fiber& fiber = fibers_[current_];
  std::memcpy(fiber.offered.data(), mine, bytes);
  fiber.source = source;
  fiber.theirs = theirs;
  meet(mask, bytes);
}

}  // namespace

void run_grid(unsigned blocks, unsigned threads, const std::function<void()>& body) {
  place.block_size = {threads, 1, 1};
  place.grid_size = {blocks, 1, 1};
  for (unsigned k = 0; k < blocks; ++k) {
    place.block.x = descending() ? blocks - 1 - k : k;
    block().run(threads, body);
  }
}

void sync_threads() { block().sync_threads(); }
void sync_warp(unsigned mask) { block().meet(mask, 0); }

void exchange(unsigned mask, unsigned source, const void* mine, void* theirs, std::size_t bytes) {
  if (bytes > kMostExchanged) undefined("a shuffle of more than 16 bytes");
  block().exchange(mask, source, mine, theirs, bytes);
}

}  // namespace rematch::emulator
