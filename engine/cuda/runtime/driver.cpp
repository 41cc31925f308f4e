#include "engine/cuda/runtime/driver.h"

#include <dlfcn.h>
#include <unistd.h>

namespace rematch::cuda {

bool has_driver() {
  // Exists with any GPU (a container need not have the first one); the other is WSL's.
  if (::access("/dev/nvidiactl", F_OK) != 0 && ::access("/dev/dxg", F_OK) != 0) return false;
  void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library != nullptr) (void)::dlclose(library);
  return library != nullptr;
}

}  // namespace rematch::cuda
