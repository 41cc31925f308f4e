#include "scenarios/data/idx_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <system_error>

#include "scenarios/data/dataset.h"

namespace rematch::scenarios {
namespace {

/// A file read through zlib, which passes plain files on as they are.
class GzipReader {
 public:
  explicit GzipReader(const std::filesystem::path& path) : path_(path.string()) {
    errno = 0;
    file_.reset(gzopen(path_.c_str(), "rb"));
    if (!file_) {
      const int reason = errno != 0 ? errno : ENOMEM;
      fail("a readable file", std::generic_category().message(reason));
    }
  }

  /// Reads exactly as many bytes as `out` has; `what` names them.
  void read(std::span<std::uint8_t> out, std::string_view what) {
    std::size_t done = 0;
    while (done < out.size()) {
      const std::size_t rest = out.size() - done;
      const auto ask = static_cast<unsigned>(std::min<std::size_t>(rest, 1U << 24));
      const int got = gzread(file_.get(), out.data() + done, ask);
      if (got < 0) fail(what, error_text());
      if (got == 0) {
        fail(what, fmt::format("the file's end after {} of {} bytes", done, out.size()));
      }
      done += static_cast<std::size_t>(got);
    }
  }

  /// Nothing may follow. Reads on, so that gzip's checksum is looked at as well.
  void expect_end() {
    std::uint8_t surplus = 0;
    const int got = gzread(file_.get(), &surplus, 1);
    if (got < 0) fail("the file's end", error_text());
    if (got > 0) fail("the file's end", "more bytes");
    // A stream that stops in its trailer is seen only now.
    if (gzclose(file_.release()) != Z_OK) fail("a complete gzip stream", "one cut off");
  }

  [[noreturn]] void fail(std::string_view expected, std::string_view got) const {
    throw DataError(fmt::format("{}: expected {}, got {}", path_, expected, got));
  }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { gzclose(file); }
  };

  std::string error_text() const {
    int code = 0;
    const char* text = gzerror(file_.get(), &code);
    return code == Z_ERRNO ? std::generic_category().message(errno) : fmt::format("'{}'", text);
  }

  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

}  // namespace

IdxArray read_idx_file(const std::filesystem::path& file, int rank, std::int64_t max_values) {
  GzipReader reader(file);
  std::uint8_t magic[4] = {};
  reader.read(magic, "an IDX header");
  const bool bytes = magic[0] == 0 && magic[1] == 0 && magic[2] == 8;
  if (!bytes || magic[3] != rank) {
    reader.fail(fmt::format("an IDX file of unsigned bytes, rank {} (it begins 00 00 08 {:02x})",
                            rank, rank),
                fmt::format("{:02x} {:02x} {:02x} {:02x}", magic[0], magic[1], magic[2], magic[3]));
  }
  IdxArray array;
  std::int64_t count = 1;
  for (int i = 0; i < rank; ++i) {
    std::uint8_t word[4] = {};
    reader.read(word, "the extents of an IDX header");
    const std::int64_t extent =
        static_cast<std::int64_t>(word[0]) << 24 | word[1] << 16 | word[2] << 8 | word[3];
    // Each extent is below 2^32 and the product so far below max_values, so it cannot overflow.
    count = extent != 0 && count > max_values / extent ? max_values + 1 : count * extent;
    array.extents.push_back(extent);
  }
  if (count > max_values) {
    reader.fail(fmt::format("at most {} values", max_values),
                fmt::format("extents [{}]", fmt::join(array.extents, ", ")));
  }
  array.values.resize(static_cast<std::size_t>(count));
  reader.read(array.values, fmt::format("{} values", count));
  reader.expect_end();
  return array;
}

}  // namespace rematch::scenarios
