#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rematch {

/// RFC 4648, section 4, with padding.
void append_base64(std::span<const std::byte> bytes, std::string& out);

/// nullopt for anything but what append_base64() writes.
std::optional<std::vector<std::byte>> from_base64(std::string_view text);

}  // namespace rematch
