#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/memory/ledger.h"

namespace rematch {

/// One allocation, shared by every tensor that views it. Its version counts in-place writes, so
/// that a change of a saved tensor is detected.
class Storage {
 public:
  /// Uninitialised memory from the ambient ledger. Throws OutOfMemory.
  Storage(std::int64_t bytes, Tag tag);
  /// The same from `ledger`.
  Storage(std::shared_ptr<Ledger> ledger, std::int64_t bytes, Tag tag);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() { return data_; }
  std::int64_t bytes() const { return bytes_; }
  Device device() const { return ledger_->device(); }
  MemoryResource& memory() const { return ledger_->memory(); }
  Tag tag() const { return saves_ > 0 && tag_ == Tag::temporaries ? Tag::saved : tag_; }
  void set_tag(Tag tag) noexcept;
  /// True for Tag::temporaries, even while the graph holds it and tag() says saved. No other owner
  /// is known.
  bool temporary() const { return tag_ == Tag::temporaries; }

  /// No other storage of the process has it.
  std::uint64_t id() const { return id_; }
  /// The id that the next storage made on this thread gets.
  static std::uint64_t next_id();
  /// Made before the storage of that id, which this thread made or is to make; or on another
  /// thread.
  bool is_older_than(std::uint64_t id) const {
    return (id_ ^ id) >> kIdBitsOfThread != 0 || id_ < id;
  }

  /// In-place writes so far: in 64 bits no count is reached twice.
  std::uint64_t version() const { return version_; }
  void bump_version(std::uint64_t writes = 1) { version_ += writes; }
  /// To be called before work is queued that writes to memory which others have seen.
  void before_write() const { ledger_->memory().before_write(data_); }

  /// The graph saved a tensor on this storage (or let go of one): a temporary counts as
  /// Tag::saved from the first save to the last release.
  void hold() noexcept;
  void drop() noexcept;

 private:
  /// An id counts a thread's storages in its low bits (a day's at one in 80 ns), then threads.
  static constexpr int kIdBitsOfThread = 40;
  static std::uint64_t& id_counter();

  std::uint64_t id_;
  std::shared_ptr<Ledger> ledger_;
  std::byte* data_;
  std::int64_t bytes_;
  std::uint64_t version_ = 0;
  std::int32_t saves_ = 0;
  Tag tag_;
};

}  // namespace rematch
