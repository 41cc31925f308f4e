#include "bench/steps/program/device_clock.h"
#include "engine/cuda/runtime/device.h"

namespace rematch::bench {

struct DeviceClock::Events {};

DeviceClock::DeviceClock() { cuda::require_device("rematch-bench"); }
DeviceClock::~DeviceClock() = default;
void DeviceClock::start() {}
double DeviceClock::stop() { return 0; }

}  // namespace rematch::bench
