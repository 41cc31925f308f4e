#include "properties/output/svg_parts.h"

#include <algorithm>

namespace rematch::cli {

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

TickStep tick_step(double span, int most, double least) {
  constexpr int kSmallest = -12;
  const auto power = [](int exponent) {
    double value = 1;
    for (int i = 0; i < exponent; ++i) value *= 10;
    return value;
  };
  for (int exponent = kSmallest;; ++exponent) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      // Quotients and products of exact numbers: the nearest doubles on every machine.
      const double size = exponent < 0 ? factor / power(-exponent) : factor * power(exponent);
      if (size >= least && span / size <= most) return {size, std::max(0, -exponent)};
    }
  }
}

}  // namespace rematch::cli
