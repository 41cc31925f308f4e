#include "properties/cli/rare_entries.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "properties/case/json.h"
#include "properties/hunt/lost_worker.h"
#include "properties/hunt/regressions.h"
#include "properties/hunt/tally.h"
#include "properties/hunt/worker.h"
#include "properties/hunt/worker_process.h"

namespace rematch::cli {

std::vector<std::string> take_shown(const HuntOptions& o, std::vector<std::string>& unseen) {
  std::vector<std::string> shown;
  const std::vector<KnownDivergence>& entries = o.profile.entries();
  std::unique_ptr<Worker> worker;
  for (std::size_t i = 0; i < entries.size() && !o.stopped(); ++i) {
    const auto at = std::find(unseen.begin(), unseen.end(), entries[i].id);
    if (at == unseen.end()) continue;
    const auto take = [&] {
      shown.push_back(*at);
      unseen.erase(at);
    };
    if (entries[i].example.empty()) {
      if (!entries[i].script.empty()) take();
      continue;
    }
    try {
      const Case c = case_from_json(entries[i].example);
      if (!worker) worker = make_worker(o);
      if (!lacking(worker->scope(), c).empty()) continue;
      bool seen = worker->judge(0, c).known_of(i) > 0;
      // What varies by chance, by where memory lies, may show in another process.
      for (int others = 4; !seen && others > 0; --others) {
        worker = make_worker(o);
        seen = worker->judge(0, c).known_of(i) > 0;
      }
      if (seen) take();
    } catch (const WorkerLost&) {
      // The next entry gets another worker; this one stays unseen.
      worker.reset();
    }
  }
  return shown;
}

}  // namespace rematch::cli
