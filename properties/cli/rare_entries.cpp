#include "properties/cli/rare_entries.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "properties/hunt/lost_worker.h"
#include "properties/hunt/regressions.h"
#include "properties/hunt/tally.h"
#include "properties/hunt/worker.h"
#include "properties/hunt/worker_process.h"

namespace rematch::cli {

void forget_shown(const HuntOptions& o, std::vector<std::string>& unseen) {
  const std::vector<KnownDivergence>& entries = o.profile.entries();
  std::unique_ptr<Worker> worker;
  for (std::size_t i = 0; i < entries.size() && !o.stopped(); ++i) {
    const auto at = std::find(unseen.begin(), unseen.end(), entries[i].id);
    if (at == unseen.end() || !std::filesystem::exists(o.profile.case_of(i))) continue;
    try {
      const Case c = load_case(o.profile.case_of(i));
      if (!worker) worker = make_worker(o);
      if (!lacking(worker->scope(), c).empty()) continue;
      if (worker->judge(0, c).known_of(i) > 0) unseen.erase(at);
    } catch (const WorkerLost&) {
      // The next entry gets another worker; this one stays unseen.
      worker.reset();
    }
  }
}

}  // namespace rematch::cli
