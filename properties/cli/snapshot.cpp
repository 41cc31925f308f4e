#include "properties/cli/snapshot.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "properties/cli/timeline.h"

namespace rematch::cli {
namespace {

/// Writes values of Python that need no class. Nothing is remembered, so equal texts stand twice.
class Pickle {
 public:
  static constexpr char kEmptyDict = '}';
  static constexpr char kEmptyList = ']';
  static constexpr char kSetItem = 's';
  static constexpr char kAppend = 'a';

  Pickle() { out_ = "\x80\x02"; }
  void put(char opcode) { out_ += opcode; }
  void text(std::string_view text) {
    put('X');
    little_endian(text.size(), 4);
    out_ += text;
  }
  void number(std::int64_t value) {
    // LONG1, which has as many bytes as it says; the viewer takes 8.
    out_ += "\x8a\x08";
    little_endian(static_cast<std::uint64_t>(value), 8);
  }
  void set(std::string_view key, std::int64_t value) {
    text(key);
    number(value);
    put(kSetItem);
  }
  void set(std::string_view key, std::string_view value) {
    text(key);
    text(value);
    put(kSetItem);
  }
  std::string done() && { return std::move(out_) + '.'; }

 private:
  void little_endian(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i) & 0xff);
  }
  std::string out_;
};

struct Block {
  std::int64_t address = 0;
  std::int64_t bytes = 0;
};

void put_event(Pickle& pickle, std::string_view action, const Block& block, std::size_t at,
               const Case& c, const TimelinePoint& point) {
  const bool in_layer = point.layer >= 0;
  pickle.put(Pickle::kEmptyDict);
  pickle.set("action", action);
  pickle.set("addr", block.address);
  pickle.set("size", block.bytes);
  pickle.set("stream", 0);
  pickle.set("time_us", static_cast<std::int64_t>(at));
  pickle.text("frames");
  pickle.put(Pickle::kEmptyList);
  pickle.put(Pickle::kEmptyDict);
  pickle.set("filename",
             phase_name(point.phase) +
                 (in_layer ? fmt::format(": layer {}", point.layer) : ": outside of layers"));
  pickle.set("line", 0);
  std::string name;
  if (in_layer) name = to_string(c.layers[static_cast<std::size_t>(point.layer)].kind);
  if (point.execution > 0) name += fmt::format(", recomputation {}", point.execution);
  pickle.set("name", name);
  pickle.put(Pickle::kAppend);
  pickle.put(Pickle::kSetItem);
  pickle.put(Pickle::kAppend);
}

void put_trace(Pickle& pickle, const Case& c, std::span<const TimelinePoint> timeline) {
  std::unordered_map<int, Block> live;
  std::int64_t before = 0;
  // The viewer takes addresses for names: each allocation gets its own.
  std::int64_t next = 64;
  pickle.put(Pickle::kEmptyList);
  for (std::size_t i = 0; i < timeline.size(); ++i) {
    const TimelinePoint& point = timeline[i];
    const std::int64_t change = point.live - before;
    before = point.live;
    if (change > 0) {
      const Block& block = live[point.block] = {next, change};
      next += (change + 63) / 64 * 64;
      put_event(pickle, "alloc", block, i, c, point);
    } else if (const auto found = live.find(point.block); change < 0 && found != live.end()) {
      put_event(pickle, "free_requested", found->second, i, c, point);
      put_event(pickle, "free_completed", found->second, i, c, point);
      live.erase(found);
    }
  }
}

}  // namespace

std::string memory_snapshot(const Case& c, const Record& plain, const Record& checkpointed) {
  Pickle pickle;
  pickle.put(Pickle::kEmptyDict);
  pickle.text("segments");
  pickle.put(Pickle::kEmptyList);
  pickle.put(Pickle::kSetItem);
  pickle.text("device_traces");
  pickle.put(Pickle::kEmptyList);
  for (const Record* record : {&plain, &checkpointed}) {
    put_trace(pickle, c, record->timeline);
    pickle.put(Pickle::kAppend);
  }
  pickle.put(Pickle::kSetItem);
  pickle.text("allocator_settings");
  pickle.put(Pickle::kEmptyDict);
  pickle.put(Pickle::kSetItem);
  return std::move(pickle).done();
}

}  // namespace rematch::cli
