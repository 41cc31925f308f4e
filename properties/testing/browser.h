#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rematch::testing {

/// The name of the browser that is installed; empty if none is.
std::string browser();

/// Values that `script`, a function of JavaScript that takes a window, returns for an HTML
/// page at each of these widths: JSON, an array of values. `options` go to the browser. Throws
/// std::runtime_error with what the browser said if it shows nothing.
std::string looked_at(std::string_view page, std::string_view script,
                      const std::vector<int>& widths, const std::string& options = "");

}  // namespace rematch::testing
