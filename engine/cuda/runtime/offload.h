#pragma once

// Copies between device memory and the host that run beside the computation, on a stream of the
// thread's own (cuda/runtime/context.h). Nothing here waits on the host. engine/no_cuda implements
// it where there was no nvcc.

#include <cstdint>
#include <memory>

#include "engine/memory/resource.h"

namespace rematch::cuda {

/// A resource for a ledger on the host, of memory that the device reads and writes without the
/// host's help. Its blocks are taken back in the order of the thread's copies, so one may be
/// released while a copy of it is under way; they are kept for reuse by size class until trim().
/// Throws DeviceError when there is no device.
std::unique_ptr<MemoryResource> pinned_memory();

/// Queues a copy out of a block of the device to pinned memory: after all work queued so far,
/// beside what is queued next. Until finish_copy() the block must not be released, and a writer has
/// to ask MemoryResource::before_write(). Several may be under way. Throws DeviceError.
void begin_copy_out(void* pinned, const void* block, std::int64_t bytes);

/// Queues a copy into a block of the device from pinned memory: after all work and all copies
/// queued so far, beside what is queued next. Until finish_copy() the block must not be used or
/// released. Throws DeviceError.
void begin_copy_back(void* block, const void* pinned, std::int64_t bytes);

/// Work queued from now on comes after the copies that the calling thread has begun of `block`, if
/// there are any. Where that cannot be queued the host waits instead; the error shows in the next
/// checked call. Needs a thread that has used the device.
void finish_copy(const void* block) noexcept;
/// The same of all copies.
void finish_copies() noexcept;

}  // namespace rematch::cuda
