#pragma once

// The CUDA device as seen by code that compiles with and without CUDA. engine/no_cuda implements it
// where there was no nvcc: no device is ever found, and asking for one says why.

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "engine/memory/resource.h"

namespace rematch::cuda {

/// A call to CUDA, cuBLAS or cuDNN failed, or a device was asked for and there is none. The text
/// names the call and says what to do.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The device context is lost: every later call of the process fails as well, whatever it is for.
/// So it says nothing about the work that happened to notice.
class DeviceLost : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// The number of CUDA devices that can be used; 0 without a driver, with one that is too old, and
/// in a build without CUDA. Never throws.
int device_count();

/// All that decides bits beside this program: the device, the SMs that this process may use, the
/// versions of the libraries, and the variables that they read. Bits are comparable only where all
/// of it is equal. With no device: "this build has no CUDA", "no CUDA device was found", or why the
/// device that there is cannot be used.
std::string device_description();

/// Throws DeviceError("[`asker`] ...") unless there is a device.
void require_device(std::string_view asker);

/// A resource for a ledger: blocks of one pool of device memory that all resources of the process
/// share. Blocks are handed out and taken back in the order of the calling thread's stream, and are
/// kept for reuse by size class, so that a step that was run once allocates nothing and can be
/// captured in a graph. Throws DeviceError when there is no device.
std::unique_ptr<MemoryResource> device_memory();

/// Bytes of the device that this process holds, where a ledger counts those that were asked for.
/// The highest values since the process began: in use from the pool by ledgers, blocks that they
/// keep for reuse, and workspaces; and reserved for the pool. The workspaces are part of both.
struct DeviceBytes {
  std::int64_t pool_used_peak = 0;
  std::int64_t pool_reserved_peak = 0;
  std::int64_t workspaces = 0;
};
/// Throws DeviceError when there is no device.
DeviceBytes device_bytes();

/// How float32 products are formed. strict: in float32. tf32: operands may be rounded to TF32 (10
/// bits of fraction), sums are float32. float64 is the same in both.
enum class Precision : std::uint8_t { strict, tf32 };
/// The calling thread's setting; strict in a new thread.
Precision precision();
void set_precision(Precision precision);

/// Matrix products and convolutions of at most this many multiply-adds run on the engine's own
/// kernels rather than on cuBLASLt and cuDNN: to search for an algorithm or to make a plan takes
/// longer than to run them. The calling thread's setting; kDirectProducts in a new thread, 0 sends
/// all that the libraries can do to them.
inline constexpr std::int64_t kDirectProducts = std::int64_t{1} << 20;
std::int64_t direct_products();
void set_direct_products(std::int64_t products);

/// Who did the work.
enum class Backend : std::uint8_t { kernels, cublaslt, cudnn };
inline constexpr int kBackendCount = 3;
std::string_view to_string(Backend backend);
/// How often the calling thread has handed work to the backend since its first use of CUDA.
std::int64_t backend_calls(Backend backend);

/// Work that a thread has asked of the device, run or captured. A launch of a graph is not counted
/// with what is in it.
struct Operations {
  /// The engine's own kernels, and calls of cuBLASLt and cuDNN.
  std::int64_t kernels = 0;
  std::int64_t products = 0;
  std::int64_t fills = 0;
  /// Copies from the host, to the host, and on the device.
  std::int64_t uploads = 0;
  std::int64_t downloads = 0;
  std::int64_t copies = 0;
  /// How often the host waited for the device.
  std::int64_t waits = 0;
  /// Convolutions of more than direct_products() multiply-adds that ran on the engine's own kernels
  /// nonetheless, because cuDNN has no deterministic plan for them: correct, but slow. In bfloat16
  /// the plan must include the bias, if there is one.
  std::int64_t slow_convolutions = 0;

  [[nodiscard]] std::int64_t sum() const {
    return kernels + products + fills + uploads + downloads + copies;
  }
  bool operator==(const Operations&) const = default;
  Operations& operator+=(const Operations& more) { return add(more, 1); }
  friend Operations operator-(Operations now, const Operations& before) {
    return now.add(before, -1);
  }

 private:
  Operations& add(const Operations& other, std::int64_t times) {
    kernels += times * other.kernels;
    products += times * other.products;
    fills += times * other.fills;
    uploads += times * other.uploads;
    downloads += times * other.downloads;
    copies += times * other.copies;
    waits += times * other.waits;
    slow_convolutions += times * other.slow_convolutions;
    return *this;
  }
};
/// The text for the user when there were slow convolutions.
inline constexpr std::string_view kSlowConvolutionWarning =
    "cuDNN could not run some convolutions deterministically; they ran on slow kernels of the "
    "engine";
/// The calling thread's since its first use of CUDA.
Operations operations();

/// Copies in stream order. The first may return before the device has the bytes, but memory at
/// `from` may change at once, even if the copy is captured (by cuda::Graph, which keeps the bytes);
/// the second waits for all work before it.
void copy_to_device(void* to, const void* from, std::int64_t bytes);
void copy_to_host(void* to, const void* from, std::int64_t bytes);

/// Waits for all work of the calling thread, and throws what went wrong in it.
void synchronize();

}  // namespace rematch::cuda
