#include "engine/cuda/driver.h"

#include <dlfcn.h>
#include <unistd.h>

namespace rematch::cuda {

bool has_driver() {
  if (::access("/dev/nvidia0", F_OK) != 0) return false;
  void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library != nullptr) (void)::dlclose(library);
  return library != nullptr;
}

}  // namespace rematch::cuda
