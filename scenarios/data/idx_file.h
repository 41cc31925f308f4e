#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace rematch::scenarios {

/// An array of bytes as an IDX file holds it, the format of MNIST: two zero bytes, the type (8:
/// unsigned bytes), the rank, the extents as big-endian 32-bit numbers, then the values in
/// row-major order.
struct IdxArray {
  std::vector<std::int64_t> extents;
  std::vector<std::uint8_t> values;
};

/// Reads an IDX file of unsigned bytes, gzip-compressed or not, of the rank given and at most
/// `max_values` values. Throws DataError for a file that cannot be read, is of another format,
/// ends early, goes on after its last value, or is damaged (gzip's checksum).
IdxArray read_idx_file(const std::filesystem::path& file, int rank, std::int64_t max_values);

}  // namespace rematch::scenarios
