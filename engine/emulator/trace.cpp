#include "engine/emulator/trace.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "engine/emulator/stream.h"

namespace rematch::emulator {

namespace {

/// Launches of a kernel that are written, each of another size: a number among its arguments has
/// more or fewer bits.
constexpr std::size_t kMostShapes = 12;
/// Bytes that a launch may reach, to be written.
constexpr std::size_t kMostBytes = std::size_t{4} << 20;

constexpr std::byte kUnwritten{0xff};

/// A block before a launch, without unwritten bytes at its end.
struct Before {
  std::span<std::byte> block;
  std::vector<std::byte> content;
};

/// Names of the kernel and of the file that it is in, such as "moe": functions in unnamed
/// namespaces of several files may have one name.
using Name = std::pair<std::string, std::string>;

struct Kernel {
  std::int64_t launches = 0;
  std::int64_t written = 0;
  std::int64_t repeated = 0;
  std::int64_t too_large = 0;
  std::set<std::string> shapes;
};

struct Trace {
  std::string folder;
  std::map<Name, Kernel> kernels;
  std::int64_t files = 0;

  void summarise() const;
};

/// Never destroyed: the summary is written when the process ends.
Trace& trace() {
  static auto* const instance = [] {
    const char* const folder = std::getenv("REMATCH_EMULATOR_TRACE");
    auto* const t = new Trace{folder == nullptr ? "" : folder, {}, 0};
    if (folder != nullptr && !std::filesystem::is_directory(folder)) {
      std::fprintf(stderr, "emulated device: REMATCH_EMULATOR_TRACE names no folder: %s\n", folder);
      std::abort();
    }
    if (folder != nullptr) (void)std::atexit([] { trace().summarise(); });
    return t;
  }();
  return *instance;
}

void Trace::summarise() const {
  std::ofstream out(folder + "/launches.json");
  out << "{\"library_calls\": " << rematch_emulator_asked(static_cast<int>(Asked::product))
      << ", \"most_shapes\": " << kMostShapes << ", \"most_bytes\": " << kMostBytes
      << ", \"kernels\": {";
  const char* separator = "\n";
  for (const auto& [name, k] : kernels) {
    out << std::exchange(separator, ",\n") << '"' << name.second << ' ' << name.first
        << "\": {\"launches\": " << k.launches << ", \"written\": " << k.written
        << ", \"repeated\": " << k.repeated << ", \"too_large\": " << k.too_large << '}';
  }
  out << "}}\n";
}

Name kernel_name(const std::function<void()>& body) {
  names_kernel = true;
  Name name;
  try {
    body();
  } catch (const KernelName& thrown) {
    const std::string file = thrown.source;
    const std::size_t begin = file.find_last_of('/') + 1;
    name = {thrown.mangled, file.substr(begin, file.find('.', begin) - begin)};
  }
  names_kernel = false;
  return name;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[std::to_integer<unsigned>(b) >> 4U];
    text += kDigits[std::to_integer<unsigned>(b) & 15U];
  }
  return text;
}

/// The blocks that arguments point into, and in `sizes` how many bits have the words that are no
/// pointers.
std::map<std::byte*, std::span<std::byte>> reached(const std::vector<Argument>& arguments,
                                                   std::string& sizes) {
  std::map<std::byte*, std::span<std::byte>> blocks;
  for (const Argument& a : arguments) {
    for (std::size_t at = 0; at < a.bytes.size(); at += sizeof(void*)) {
      std::uint64_t word = 0;
      std::memcpy(&word, a.bytes.data() + at, std::min(sizeof word, a.bytes.size() - at));
      const std::span<std::byte> block = reachable_block(std::bit_cast<void*>(word));
      if (block.empty()) {
        sizes += std::to_string(std::bit_width(word)) + " ";
      } else {
        blocks[block.data()] = block;
      }
    }
  }
  return blocks;
}

void write(std::ofstream& out, std::span<const std::byte> bytes) {
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

/// Where a block differs from what it was: the first byte that does, and the end of the last.
std::pair<std::size_t, std::size_t> changed(const Before& before) {
  const auto was = [&](std::size_t at) {
    return at < before.content.size() ? before.content[at] : kUnwritten;
  };
  std::size_t end = before.block.size();
  while (end > 0 && before.block[end - 1] == was(end - 1)) --end;
  std::size_t begin = 0;
  while (begin < end && before.block[begin] == was(begin)) ++begin;
  return {begin, end};
}

void write(const std::string& file, const Name& kernel, const Launch& launch,
           const std::vector<Before>& memory) {
  std::ofstream out(file, std::ios::binary);
  out << "{\"kernel\": \"" << kernel.first << "\", \"source\": \"" << kernel.second
      << "\", \"blocks\": " << launch.blocks << ", \"threads\": " << launch.threads
      << ", \"shared\": " << launch.shared << ", \"arguments\": [";
  const char* separator = "";
  for (const Argument& a : launch.arguments) {
    out << std::exchange(separator, ", ") << "[\"" << a.kind << "\", \"" << hex(a.bytes) << "\"]";
  }
  out << "], \"memory\": [";
  separator = "";
  for (const Before& b : memory) {
    const auto [begin, end] = changed(b);
    out << std::exchange(separator, ", ") << '[' << reinterpret_cast<std::uintptr_t>(b.block.data())
        << ", " << b.block.size() << ", " << b.content.size() << ", " << begin << ", " << end
        << ']';
  }
  out << "]}\n";
  for (const Before& b : memory) {
    const auto [begin, end] = changed(b);
    write(out, b.content);
    write(out, std::span(b.block).subspan(begin, end - begin));
  }
}

}  // namespace

bool is_traced() {
  static const bool is = !trace().folder.empty();
  return is;
}

void run_traced(const Launch& launch, const std::function<void()>& body,
                const std::function<void()>& run) {
  Trace& t = trace();
  const Name name = kernel_name(body);
  Kernel& kernel = t.kernels[name];
  ++kernel.launches;
  std::string shape =
      std::to_string(std::bit_width(launch.blocks)) + " " + std::to_string(launch.threads) + " ";
  const auto blocks = reached(launch.arguments, shape);
  if (kernel.shapes.contains(shape) || kernel.shapes.size() == kMostShapes) {
    ++kernel.repeated;
    return run();
  }
  std::vector<Before> memory;
  std::size_t bytes = 0;
  for (const auto& [begin, block] : blocks) {
    std::size_t size = block.size();
    while (size > 0 && block[size - 1] == kUnwritten) --size;
    bytes += size;
    memory.push_back({block, {block.begin(), block.begin() + static_cast<std::ptrdiff_t>(size)}});
  }
  if (bytes > kMostBytes) {
    ++kernel.too_large;
    return run();
  }
  kernel.shapes.insert(shape);
  run();
  ++kernel.written;
  write(t.folder + "/" + std::to_string(t.files++) + ".launch", name, launch, memory);
}

}  // namespace rematch::emulator
