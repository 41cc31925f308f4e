#pragma once

#include "scenarios/report/scenario.h"

namespace rematch::scenarios {

/// Tells how far the story is, if somebody listens.
inline void tell(const Options& options, std::string_view text) {
  if (options.progress) options.progress(text);
}

/// Whether the story is to wind up.
inline bool stopped(const Options& options) { return options.stopped && options.stopped(); }

}  // namespace rematch::scenarios
