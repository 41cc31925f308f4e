#include "engine/cuda/runtime/offload.h"

#include "engine/cuda/runtime/device.h"

namespace rematch::cuda {

std::unique_ptr<MemoryResource> pinned_memory() {
  require_device("pinned_memory");
  return nullptr;
}

void begin_copy_out(void*, const void*, std::int64_t) { require_device("begin_copy_out"); }
void begin_copy_back(void*, const void*, std::int64_t) { require_device("begin_copy_back"); }
void finish_copy(const void*) noexcept {}
void finish_copies() noexcept {}

}  // namespace rematch::cuda
