#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "scenarios/data/dataset.h"

namespace rematch::scenarios {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPictureBytes = 3 * 32 * 32;
/// One byte of label, then the picture.
constexpr std::int64_t kRecordBytes = 1 + kPictureBytes;

void append(Pictures& all, const fs::path& file, std::int64_t records) {
  // A folder can be opened as a stream, and then fails to be read without saying why.
  std::error_code error;
  if (!fs::is_regular_file(file, error)) {
    throw DataError(fmt::format("{}: expected a file of CIFAR-10's binary version, got {}",
                                file.string(),
                                fs::exists(file, error) ? "something else" : "none"));
  }
  const std::int64_t expected = records * kRecordBytes;
  const auto size = static_cast<std::int64_t>(fs::file_size(file, error));
  if (error || size != expected) {
    throw DataError(fmt::format("{}: expected {} records of {} bytes, {} bytes in all, got {}",
                                file.string(), records, kRecordBytes, expected,
                                error ? error.message() : fmt::format("{} bytes", size)));
  }
  std::ifstream in(file, std::ios::binary);
  all.values.reserve(all.values.size() + static_cast<std::size_t>(records * kPictureBytes));
  for (std::int64_t i = 0; i < records; ++i) {
    char label = 0;
    const std::size_t at = all.values.size();
    all.values.resize(at + kPictureBytes);
    in.get(label);
    in.read(reinterpret_cast<char*>(all.values.data() + at), kPictureBytes);
    if (!in) {
      throw DataError(fmt::format("{}: expected record {} of {}, got a failed read", file.string(),
                                  i, records));
    }
    const auto value = static_cast<std::uint8_t>(label);
    if (value >= Pictures::kClasses) {
      throw DataError(fmt::format("{}: expected a label below {} in record {}, got {}",
                                  file.string(), Pictures::kClasses, i, value));
    }
    all.labels.push_back(value);
  }
}

}  // namespace

Dataset read_cifar10(const fs::path& folder, std::int64_t records_a_file) {
  Dataset data{"CIFAR-10", {3, 32, 32, {}, {}}, {3, 32, 32, {}, {}}};
  for (int i = 1; i <= 5; ++i) {
    append(data.train, folder / fmt::format("data_batch_{}.bin", i), records_a_file);
  }
  append(data.test, folder / "test_batch.bin", records_a_file);
  return data;
}

}  // namespace rematch::scenarios
