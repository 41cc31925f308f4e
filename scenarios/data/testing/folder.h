#pragma once

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "properties/testing/shell.h"

namespace rematch::scenarios::testing {

using Bytes = std::vector<std::uint8_t>;

/// A folder of a test's own, gone afterwards.
class Folder : public rematch::testing::ScratchFolder {
 public:
  std::filesystem::path write(const std::string& name, const Bytes& bytes) const {
    return ScratchFolder::write(name, {bytes.begin(), bytes.end()});
  }
};

/// The bytes as gzip writes them.
inline Bytes gzip(const Bytes& bytes) {
  z_stream stream{};
  // 15 + 16: the largest window, and gzip's header and trailer.
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  Bytes out(deflateBound(&stream, bytes.size()));
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// An IDX file of unsigned bytes.
inline Bytes idx(const std::vector<std::uint32_t>& extents, const Bytes& values) {
  Bytes bytes{0, 0, 8, static_cast<std::uint8_t>(extents.size())};
  for (const std::uint32_t e : extents) {
    for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<std::uint8_t>(e >> shift));
  }
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

}  // namespace rematch::scenarios::testing
