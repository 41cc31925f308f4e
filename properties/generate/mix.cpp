#include "properties/generate/mix.h"

#include "properties/generate/draw_source.h"
#include "properties/generate/parts.h"

namespace rematch {

std::string_view to_string(Mix mix) {
  switch (mix) {
    case Mix::standard:
      return "standard";
    case Mix::wide:
      return "wide";
  }
  return "?";
}

Case generate_case(Mix mix, std::uint64_t seed, std::uint64_t index) {
  DrawSource draw(seed, index);
  Case c;
  c.seed = draw.word();
  if (mix == Mix::standard) {
    draw_standard(draw, c);
    return c;
  }
  if (draw.chance(12)) c.seed = c.seed << 32 | draw.word();
  draw_wide_protocol(draw, c);
  draw_wide_model(draw, c);
  draw_wide_plan(draw, c);
  draw_in_place(draw, c);
  draw_mishap(draw, c);
  return c;
}

}  // namespace rematch
