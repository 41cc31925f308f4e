// Preloaded into a program, lets every allocation fail from number REMATCH_FAIL_FROM on.
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

extern "C" void* __libc_malloc(std::size_t);
extern "C" void* __libc_memalign(std::size_t, std::size_t);

namespace {

bool fails() {
  static std::atomic<long> count{0};
  static const long from = std::atol(std::getenv("REMATCH_FAIL_FROM"));
  if (count.fetch_add(1) < from) return false;
  errno = ENOMEM;
  return true;
}

}  // namespace

extern "C" void* malloc(std::size_t bytes) noexcept {
  return fails() ? nullptr : __libc_malloc(bytes);
}
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return fails() ? nullptr : __libc_memalign(alignment, bytes);
}
