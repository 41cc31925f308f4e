#include "properties/faults/support.h"

namespace rematch::faulty {

std::vector<std::byte> bytes_of(const Tensor& t) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(t.bytes()));
  t.copy_to_host(bytes);
  return bytes;
}

void fill_bytes(const Tensor& t, std::byte value) {
  Tensor same = t;
  same.copy_from_host(std::vector<std::byte>(static_cast<std::size_t>(t.bytes()), value));
}

void copy_bytes(const Tensor& from, const Tensor& to) {
  Tensor same = to;
  same.copy_from_host(bytes_of(from));
}

}  // namespace rematch::faulty
