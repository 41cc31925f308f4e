#include "engine/cuda/runtime/device.h"

namespace rematch::cuda {

int device_count() { return 0; }

std::string device_description() { return "this build has no CUDA"; }

void require_device(std::string_view asker) {
  throw DeviceError("[" + std::string(asker) +
                    "] this build has no CUDA; configure with REMATCH_CUDA=ON where nvcc is "
                    "installed, or use the CPU");
}

std::unique_ptr<MemoryResource> device_memory() {
  require_device("device_memory");
  return nullptr;
}

DeviceBytes device_bytes() {
  require_device("device_bytes");
  return {};
}

Precision precision() { return Precision::strict; }
void set_precision(Precision) {}
std::int64_t direct_products() { return kDirectProducts; }
void set_direct_products(std::int64_t) {}
std::string_view to_string(Backend) { return "none"; }
std::int64_t backend_calls(Backend) { return 0; }
Operations operations() { return {}; }
void copy_to_device(void*, const void*, std::int64_t) { require_device("copy_to_device"); }
void copy_to_host(void*, const void*, std::int64_t) { require_device("copy_to_host"); }
void synchronize() { require_device("synchronize"); }

}  // namespace rematch::cuda
