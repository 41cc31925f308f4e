#pragma once

#include <span>
#include <string>
#include <vector>

#include "properties/output/chart.h"
#include "properties/record/record.h"

namespace rematch::cli {

/// Events [begin, end) of a timeline that share a phase.
struct PhaseSpan {
  Moment phase{};
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::vector<PhaseSpan> phases_of(std::span<const TimelinePoint> timeline);

/// "forward", "backward" or "step".
std::string phase_name(Moment phase);

/// The live bytes of both as text, at one scale and each in `width` columns.
std::vector<std::string> memory_texts(const Record& plain, const Record& checkpointed, int width,
                                      const Paint& paint);

}  // namespace rematch::cli
