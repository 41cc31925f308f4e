#include "properties/record/machine.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <cstdint>
#include <new>
#include <optional>
#include <system_error>

#include "engine/cuda/runtime/device.h"
#include "engine/memory/ledger.h"

namespace rematch {
namespace {

constexpr std::uint64_t kMega = 1024 * 1024;

/// `ulimit -v`, in bytes.
std::optional<std::uint64_t> address_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

bool ran_out_of_memory(const std::exception& error) {
  // A thread that finds no room for its stack.
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) return true;
  // A size that nothing could hold is a mistake of the code that asks for it.
  if (dynamic_cast<const std::bad_array_new_length*>(&error) != nullptr) return false;
  return dynamic_cast<const MemoryExhausted*>(&error) != nullptr ||
         dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
}

}  // namespace

bool is_of_machine(const std::exception& error) {
  return ran_out_of_memory(error) || dynamic_cast<const cuda::DeviceLost*>(&error) != nullptr;
}

std::string describe(const std::exception& error) {
  if (!ran_out_of_memory(error)) return error.what();
  const std::optional<std::uint64_t> limit = address_limit();
  return fmt::format("memory ran out ({}); {}take fewer --jobs", error.what(),
                     limit ? fmt::format("this process is limited to {} MB of addresses: raise "
                                         "`ulimit -v`, or ",
                                         *limit / kMega)
                           : "");
}

std::string fit_memory_limit(int threads) {
#ifdef M_ARENA_MAX
  // glibc reserves 128 MB of addresses for the arena of each thread, to keep an aligned half of
  // them. Where the limit leaves no room for that, every allocation is a system call, and a hunt a
  // hundred times slower.
  const std::uint64_t needed = (static_cast<std::uint64_t>(threads) + 1) * 128 * kMega;
  const std::optional<std::uint64_t> limit = address_limit();
  if (!limit || *limit >= needed || ::mallopt(M_ARENA_MAX, 1) == 0) return {};
  return fmt::format(
      "slower than usual: this process is limited to {} MB of addresses (ulimit -v), so all jobs "
      "share one arena of memory; {} jobs want {} MB",
      *limit / kMega, threads, needed / kMega);
#else
  return {};
#endif
}

}  // namespace rematch
