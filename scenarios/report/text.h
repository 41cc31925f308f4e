#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rematch::scenarios {

/// "1,234", and of what is not whole four significant digits, or all those before the point.
std::string number_text(double value);

/// The words of `text` in lines of at most `width` columns; a longer word has a line of its own.
std::vector<std::string> wrapped(std::string_view text, int width);

}  // namespace rematch::scenarios
