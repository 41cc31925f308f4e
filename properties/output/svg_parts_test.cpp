#include "properties/output/svg_parts.h"

#include <catch2/catch_test_macros.hpp>

namespace rematch::cli {

TEST_CASE("text is escaped for elements and attributes alike") {
  CHECK(xml_escaped("a < b & \"c\" > d") == "a &lt; b &amp; &quot;c&quot; &gt; d");
  CHECK(xml_escaped("plain") == "plain");
}

TEST_CASE("a tick step is the smallest of 1, 2 and 5 times a power of ten that is coarse enough") {
  CHECK(tick_step(10, 5).size == 2);
  CHECK(tick_step(10.5, 5).size == 5);
  CHECK(tick_step(1048580, 5).size == 500000);
  CHECK(tick_step(3, 5, 1).size == 1);
  const TickStep fine = tick_step(0.3, 5);
  CHECK(fine.size == 0.1);
  CHECK(fine.decimals == 1);
  CHECK(tick_step(40, 5).decimals == 0);
}

}  // namespace rematch::cli
