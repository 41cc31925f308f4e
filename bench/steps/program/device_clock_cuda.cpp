#include <cuda_runtime_api.h>

#include "bench/steps/program/device_clock.h"
#include "engine/cuda/runtime/context.h"

namespace rematch::bench {

struct DeviceClock::Events {
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  ~Events() {
    if (start != nullptr) cudaEventDestroy(start);
    if (stop != nullptr) cudaEventDestroy(stop);
  }
};

DeviceClock::DeviceClock() : events_(std::make_unique<Events>()) {
  cuda::check(cudaEventCreate(&events_->start), "cudaEventCreate");
  cuda::check(cudaEventCreate(&events_->stop), "cudaEventCreate");
}

DeviceClock::~DeviceClock() = default;

void DeviceClock::start() {
  cuda::check(cudaEventRecord(events_->start, cuda::stream()), "cudaEventRecord");
}

double DeviceClock::stop() {
  cuda::check(cudaEventRecord(events_->stop, cuda::stream()), "cudaEventRecord");
  cuda::check(cudaEventSynchronize(events_->stop), "cudaEventSynchronize");
  float milliseconds = 0;
  cuda::check(cudaEventElapsedTime(&milliseconds, events_->start, events_->stop),
              "cudaEventElapsedTime");
  return milliseconds / 1e3;
}

}  // namespace rematch::bench
