#pragma once

namespace rematch::cuda {

/// From now on ranges (engine/ambient/ranges.h) show in the profiler that is attached to the
/// process through NVTX, such as Nsight Systems. Without one, nothing changes. The device does
/// later what the host queues in a range; the profiler projects ranges onto the device.
void show_ranges_in_profiler();

}  // namespace rematch::cuda
