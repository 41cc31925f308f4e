#include "properties/subjects/array_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "properties/record/subject.h"

namespace rematch {
namespace {

constexpr std::size_t kAlignment = 64;

[[noreturn]] void fail() {
  throw NotJudged(fmt::format("no shared memory for its arrays: {}", std::strerror(errno)));
}

}  // namespace

std::size_t ArrayFile::append(std::span<const std::byte> bytes) {
  if (fd_ < 0) fd_ = memfd_create("rematch-arrays", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0) fail();
  const std::size_t offset = (size_ + kAlignment - 1) / kAlignment * kAlignment;
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n =
        pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno != EINTR) fail();
    if (n > 0) done += static_cast<std::size_t>(n);
  }
  size_ = offset + bytes.size();
  return offset;
}

std::string ArrayFile::path() const { return fmt::format("/proc/{}/fd/{}", getpid(), fd_); }

void ArrayFile::seal() {
  if (fd_ < 0) return;
  (void)fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
}

void ArrayFile::clear() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  size_ = 0;
}

}  // namespace rematch
