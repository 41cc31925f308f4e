#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "properties/case/json.h"

/// Any text is a case or throws std::invalid_argument, and what was read is read back equal.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  rematch::Case c;
  try {
    c = rematch::case_from_json(text);
  } catch (const std::invalid_argument&) {
    return 0;
  }
  // A valid case whose own text is refused or differs is a defect of the writer: let it crash.
  const std::string written = rematch::to_json(c);
  if (rematch::to_json(rematch::case_from_json(written)) != written) std::abort();
  return 0;
}
