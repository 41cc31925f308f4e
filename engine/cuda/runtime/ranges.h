#pragma once

namespace rematch::cuda {

/// From now on ranges (engine/ambient/ranges.h) show in the profiler that is attached to the
/// process through NVTX, such as Nsight Systems. Without one, nothing changes. What the host does
/// in a range is queued on the device, which does it later; the profiler projects ranges onto it.
void show_ranges_in_profiler();

}  // namespace rematch::cuda
