#pragma once

#include "scenarios/report/scenario.h"

namespace rematch::scenarios {

/// Reports progress, if there is a listener.
inline void tell(const Options& options, std::string_view text) {
  if (options.progress) options.progress(text);
}

/// Whether the story is to wind up.
inline bool stopped(const Options& options) { return options.stopped && options.stopped(); }

}  // namespace rematch::scenarios
