#pragma once

#include "bench/compare/history.h"
#include "bench/compare/report.h"
#include "bench/compare/testing/synthetic.h"

namespace rematch::compare {

/// Files of a small measurement in which every verdict and every change of a counter occurs: the
/// same on every machine.
std::vector<FakeFile> example_files(bool is_head, int pairs = 16);
/// They, compared.
Comparison example_comparison(const Options& options = {});
/// Timelines of one step, of which the new side's has a higher peak.
TimelinePairs example_timelines();
/// 40 commits: one benchmark with a step, one with a drift, one with neither, and a counter that
/// rose.
std::vector<HistoryEntry> example_history();
/// The same as the lines of a file.
std::string example_history_text();

/// Holds `got` against bench/compare/golden/`name`. Where they differ, `got` is left in the
/// temporary folder, and the returned text says how to look at the difference and how to approve
/// it; otherwise it is empty. With REMATCH_APPROVE=1 in the environment the golden file is written.
std::string golden_difference(const std::string& name, const std::string& got);

}  // namespace rematch::compare
