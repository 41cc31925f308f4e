#include "bench/fingerprint/fingerprint.h"

#include <fstream>

#include "bench/fingerprint/commit.h"
#include "engine/backend/device.h"
#include "engine/build/build_info.h"

namespace rematch::bench {

/// Neither constant nor local, so that the program has it in one piece: ci/compare sees by it that
/// two commits make the same program.
extern char commit[];
char commit[] = REMATCH_COMMIT;

namespace {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> fingerprint(Device device, int threads) {
  return {
      {"rematch_format", "1"},
      {"rematch_commit", commit},
      {"rematch_dirty", REMATCH_DIRTY},
      {"rematch_compiler", __VERSION__},
      {"rematch_flags", REMATCH_FLAGS},
      {"rematch_build", std::string(build_kind())},
      {"rematch_cpu", cpu_model()},
      {"rematch_threads", std::to_string(threads)},
      {"rematch_device", std::string(to_string(device))},
      {"rematch_driver", device == Device::cpu ? "none" : device_description(device)},
      {"rematch_libraries", device == Device::cpu ? "none" : device_description(device)},
  };
}

}  // namespace rematch::bench
