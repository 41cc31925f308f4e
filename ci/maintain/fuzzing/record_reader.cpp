#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "properties/record/json.h"

/// Any text is a record or throws std::invalid_argument, and what was read is read back equal.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  rematch::Record record;
  try {
    rematch::record_from_json(text, record);
  } catch (const std::invalid_argument&) {
    return 0;
  }
  // A record whose own text is refused or differs is a defect of the writer: let it crash.
  const std::string written = rematch::to_json(record);
  rematch::Record again;
  rematch::record_from_json(written, again);
  if (rematch::to_json(again) != written || again.hash() != record.hash()) std::abort();
  return 0;
}
