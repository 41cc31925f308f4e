#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace rematch::cpu {

/// Room for `count` elements that belongs to the calling thread, aligned to a cache line. It only
/// grows, so that repeated calls do not allocate, and holds whatever the last caller with this slot
/// left. Kernels ask for a few megabytes at most, whatever their operands' sizes, except recurrent
/// layers, whose backward needs the gates of one sample, and attention, which packs one head's keys
/// and values. It is no part of any ledger. Throws
/// std::bad_alloc.
template <typename T, int kSlot>
T* scratch(std::int64_t count) {
  struct Free {
    void operator()(T* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  static thread_local std::unique_ptr<T, Free> memory;
  static thread_local std::int64_t size = 0;
  if (count > size) {
    memory.reset();
    size = 0;
    memory.reset(static_cast<T*>(
        ::operator new (sizeof(T) * static_cast<std::size_t>(count), std::align_val_t{64})));
    size = count;
  }
  return memory.get();
}

}  // namespace rematch::cpu
