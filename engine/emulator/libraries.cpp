#include <dlfcn.h>

#include <string_view>

// The engine opens cuBLASLt by its name, and so does cuDNN, which is to find the real one. Hidden,
// so that the program itself alone opens libraries here.
extern "C" __attribute__((visibility("hidden"))) void* dlopen(const char* name,
                                                              int flags) noexcept {
  const bool is_cublaslt =
      name != nullptr && std::string_view(name).find("cublasLt") != std::string_view::npos;
  return dlmopen(LM_ID_BASE, is_cublaslt ? REMATCH_EMULATED_CUBLASLT : name, flags);
}
