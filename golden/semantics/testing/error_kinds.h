#pragma once

#include <span>
#include <string_view>

namespace rematch::golden {

/// One kind of error: what PyTorch says, and what the engine says.
struct ErrorKind {
  std::string_view category;
  /// Empty: PyTorch has no such error.
  std::string_view their_class;
  std::string_view they_say;
  /// Empty: the engine has no such error.
  std::string_view our_class;
  std::string_view we_say;
};

std::span<const ErrorKind> error_kinds();

}  // namespace rematch::golden
