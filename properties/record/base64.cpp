#include "properties/record/base64.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace rematch {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::uint32_t kNone = 64;

constexpr std::array<std::uint8_t, 256> kValues = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(kNone);
  for (std::size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<std::uint8_t>(i);
  }
  return values;
}();

}  // namespace

void append_base64(std::span<const std::byte> bytes, std::string& out) {
  out.reserve(out.size() + (bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < count ? static_cast<std::uint32_t>(bytes[i + k]) : 0);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += k <= count ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
  }
}

std::optional<std::vector<std::byte>> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    const bool last = i + 4 == text.size();
    std::size_t count = 3;
    if (last && text[i + 3] == '=') count = text[i + 2] == '=' ? 1 : 2;
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const std::uint32_t value = k <= count ? kValues[static_cast<unsigned char>(text[i + k])] : 0;
      if (value == kNone) return std::nullopt;
      group = group << 6 | value;
    }
    // Bits of a shortened group that stand for no byte are zero.
    if ((group & ((1U << (8 * (3 - count))) - 1)) != 0) return std::nullopt;
    for (std::size_t k = 0; k < count; ++k) {
      bytes.push_back(static_cast<std::byte>(group >> (16 - 8 * k) & 0xff));
    }
  }
  return bytes;
}

}  // namespace rematch
