#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda::testing {

/// An array of the host and one of the device, which kernels of both backends take and fill alike.
template <typename T>
class Twin {
 public:
  /// Zeros on the host and guard bytes on the device: an element that a kernel leaves out differs.
  explicit Twin(std::int64_t n, std::int64_t shift = 0)
      : host_(static_cast<std::size_t>(n)), device_(n, shift) {}
  explicit Twin(std::vector<T> from, std::int64_t shift = 0)
      : host_(std::move(from)), device_(host_, shift) {}

  [[nodiscard]] T* on_host() const { return host_.data(); }
  [[nodiscard]] T* on_device() const { return device_.data(); }
  [[nodiscard]] const std::vector<T>& host() const { return host_; }
  [[nodiscard]] bool alike() const { return holds(device_, host_); }

 private:
  // Kernels write to it; a twin as such does not change.
  mutable std::vector<T> host_;
  DeviceArray<T> device_;
};

/// Stands for a twin, or for a null pointer.
template <typename T>
struct TwinOrNull {
  const Twin<T>* twin;
  [[nodiscard]] T* on_host() const { return twin != nullptr ? twin->on_host() : nullptr; }
  [[nodiscard]] T* on_device() const { return twin != nullptr ? twin->on_device() : nullptr; }
};
template <typename T>
TwinOrNull<T> null_unless(bool given, const Twin<T>& twin) {
  return {given ? &twin : nullptr};
}

struct OnHost {
  static constexpr auto at = [](const auto& twin) { return twin.on_host(); };
};
struct OnDevice {
  static constexpr auto at = [](const auto& twin) { return twin.on_device(); };
};

/// The argument of a kernel: a twin's pointer, what a function makes of a side's pointers (such as
/// a struct of some), or the argument itself.
template <typename Side, typename Argument>
decltype(auto) argument_on(const Argument& a) {
  if constexpr (requires { a.on_host(); }) {
    return Side::at(a);
  } else if constexpr (requires { a(Side::at); }) {
    return a(Side::at);
  } else {
    return (a);
  }
}

/// Calls a kernel of both backends, such as call_both(cpu::relu_forward<T>, relu_forward<T>, ...).
template <typename Kernel, typename... Arguments>
void call_both(Kernel* on_cpu, Kernel* on_device, const Arguments&... arguments) {
  on_cpu(argument_on<OnHost>(arguments)...);
  on_device(argument_on<OnDevice>(arguments)...);
}
#define REMATCH_CALL_BOTH(kernel, ...) testing::call_both(cpu::kernel, cuda::kernel, __VA_ARGS__)

/// Checks that the device holds the host's bits, and wrote nothing beside them.
template <typename... Twins>
void check_alike(const Twins&... twins) {
  int position = 0;
  const auto check = [&position](const auto& twin) {
    CAPTURE(position);
    CHECK(twin.alike());
    ++position;
  };
  (check(twins), ...);
}

}  // namespace rematch::cuda::testing
