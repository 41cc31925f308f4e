#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "engine/cpu/testing/values.h"
#include "engine/cuda/runtime/context.h"
#include "engine/cuda/runtime/device.h"
#include "engine/cuda/runtime/driver.h"

namespace rematch::cuda::testing {

using cpu::testing::same_bits;
using cpu::testing::values;

/// Skips the running test where there is no device to run it. One that is there and cannot be used
/// is a failure.
inline void need_device() {
  if (const std::string problem = device_problem(); !problem.empty()) FAIL(problem);
  if (device_count() == 0) SKIP("no CUDA device was found");
}

/// A test that needs a device: tagged [gpu], and with other tags if any are given.
template <typename = void>
struct DeviceTest {
  DeviceTest() { need_device(); }
};
#define DEVICE_TEST_CASE(name, ...) \
  TEST_CASE_METHOD(::rematch::cuda::testing::DeviceTest<>, name, "[gpu]" __VA_ARGS__)
/// The same with TestType float and double.
#define TYPED_DEVICE_TEST_CASE(name, ...)                                                    \
  TEMPLATE_TEST_CASE_METHOD(::rematch::cuda::testing::DeviceTest, name, "[gpu]" __VA_ARGS__, \
                            float, double)

/// ci/test-gpu has no blocks kept under compute-sanitizer. Then each allocation and release is one
/// of CUDA's, and work that has any cannot be captured.
inline bool blocks_are_kept() { return std::getenv("REMATCH_CUDA_KEEP_NO_BLOCKS") == nullptr; }
inline void need_kept_blocks() {
  if (!blocks_are_kept()) SKIP("released blocks are not kept in this run");
}

/// Sets direct_products() for a scope.
class DirectUpTo {
 public:
  explicit DirectUpTo(std::int64_t products) : before_(direct_products()) {
    set_direct_products(products);
  }
  ~DirectUpTo() { set_direct_products(before_); }
  DirectUpTo(const DirectUpTo&) = delete;
  DirectUpTo& operator=(const DirectUpTo&) = delete;

 private:
  std::int64_t before_;
};
inline constexpr std::int64_t kAlways = std::numeric_limits<std::int64_t>::max();

/// n elements on the device, `shift` elements past an aligned address, with guards on both sides
/// that tell whether a kernel wrote outside.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::int64_t n, std::int64_t shift = 0)
      : size_(static_cast<std::size_t>(n)), shift_(kGuard + static_cast<std::size_t>(shift)) {
    const std::size_t bytes = (shift_ + size_ + kGuard) * sizeof(T);
    check(cudaMalloc(&raw_, bytes), "cudaMalloc for a test");
    check(cudaMemset(raw_, kFill, bytes), "cudaMemset for a test");
    // The memset goes to the default stream, which stream() need not wait for.
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize for a test");
  }
  explicit DeviceArray(const std::vector<T>& from, std::int64_t shift = 0)
      : DeviceArray(static_cast<std::int64_t>(from.size()), shift) {
    check(cudaMemcpy(data(), from.data(), size_ * sizeof(T), cudaMemcpyHostToDevice),
          "cudaMemcpy for a test");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize for a test");
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(raw_); }

  [[nodiscard]] T* data() const { return static_cast<T*>(raw_) + shift_; }

  /// The elements after all work on stream().
  [[nodiscard]] std::vector<T> host() const {
    const std::vector<T> all = everything();
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(shift_);
    return {first, first + static_cast<std::ptrdiff_t>(size_)};
  }

  /// Whether nothing outside the elements was written.
  [[nodiscard]] bool guarded() const {
    const std::vector<T> all = everything();
    const auto untouched = [&](std::size_t begin, std::size_t end) {
      const auto* bytes = reinterpret_cast<const unsigned char*>(all.data());
      return std::all_of(bytes + begin * sizeof(T), bytes + end * sizeof(T),
                         [](unsigned char byte) { return byte == kFill; });
    };
    return untouched(0, shift_) && untouched(shift_ + size_, all.size());
  }

 private:
  /// A multiple of every vector width, so that shift 0 is aligned.
  static constexpr std::size_t kGuard = 64;
  static constexpr int kFill = 0xA5;

  [[nodiscard]] std::vector<T> everything() const {
    std::vector<T> all(shift_ + size_ + kGuard);
    check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize for a test");
    check(cudaMemcpy(all.data(), raw_, all.size() * sizeof(T), cudaMemcpyDeviceToHost),
          "cudaMemcpy for a test");
    return all;
  }

  std::size_t size_;
  std::size_t shift_;
  void* raw_ = nullptr;
};

/// The array holds these bits and nothing beside it was written.
template <typename T>
bool holds(const DeviceArray<T>& got, const std::vector<T>& want) {
  return got.guarded() && same_bits(got.host(), want);
}

/// Empty, single, around the vector widths, the warp, the thread block and LaneSum's block, large.
inline constexpr std::int64_t kSizes[] = {0,   1,   2,    3,    4,    5,    31,    33,
                                          255, 257, 1000, 1024, 1025, 4099, 33000, 1000003};
/// Aligned, and not.
inline constexpr std::int64_t kShifts[] = {0, 1, 2, 3};

/// Calls check(n, shift) for every size and shift.
template <typename Check>
void for_each_layout(const Check& check_layout) {
  for (const std::int64_t n : kSizes) {
    for (const std::int64_t shift : kShifts) {
      CAPTURE(n, shift);
      check_layout(n, shift);
    }
  }
}

/// Rows and columns: a half-warp a row, a block a row, of few threads where there are many rows,
/// more rows than threads, more than a group of blocks, nothing.
struct Table {
  std::int64_t rows;
  std::int64_t cols;
};
inline constexpr Table kTables[] = {{0, 5},     {1, 1},      {3, 2},      {5, 16},     {17, 17},
                                    {33, 100},  {128, 64},   {129, 31},   {1000, 130}, {7, 1023},
                                    {7, 1024},  {7, 1025},   {3, 4000},   {2, 40000},  {300, 1500},
                                    {70000, 3}, {5000, 257}, {600, 1500}, {520, 3000}, {1, 270000}};

}  // namespace rematch::cuda::testing
