#pragma once

#include <memory>

namespace rematch::bench {

/// The time that the calling thread's work takes on the CUDA device, by two events on its stream.
/// A build without CUDA has one that throws cuda::DeviceError.
class DeviceClock {
 public:
  DeviceClock();
  ~DeviceClock();
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;

  void start();
  /// Seconds since start() on the device; waits for it. Throws cuda::DeviceError for what went
  /// wrong meanwhile.
  double stop();

 private:
  struct Events;
  std::unique_ptr<Events> events_;
};

}  // namespace rematch::bench
