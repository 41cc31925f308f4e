#pragma once

#include <string>
#include <string_view>

namespace rematch::cli {

/// Mid-tones, neutral where a page is light or dark: each keeps a contrast of about 4.5 to white
/// and to black alike. A style sheet would ask the system, which may differ from the page.
inline constexpr std::string_view kGrey = "#767676";
inline constexpr std::string_view kBlue = "#3b7dd8";
inline constexpr std::string_view kOrange = "#c2571a";

/// `text` as the content of an XML element or of an attribute in double quotes.
std::string xml_escaped(std::string_view text);

/// The distance of an axis's marks: 1, 2 or 5 times a power of ten.
struct TickStep {
  double size = 1;
  /// Digits after the point that a multiple of `size` needs.
  int decimals = 0;
};

/// The smallest one, not below `least`, that cuts `span` into at most `most` pieces.
TickStep tick_step(double span, int most, double least = 0);

}  // namespace rematch::cli
