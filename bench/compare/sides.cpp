#include "bench/compare/sides.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "bench/compare/input.h"

namespace rematch::compare {
namespace {

namespace fs = std::filesystem;

const std::vector<double>& times(const BenchmarkRun& run, Clock clock) {
  return clock == Clock::real ? run.real_ns : run.cpu_ns;
}

/// A clock that stood still says nothing about a ratio.
bool usable(const std::vector<double>& ns) {
  return !ns.empty() && std::all_of(ns.begin(), ns.end(), [](double t) { return t > 0; });
}

void take_commit(Side& side, std::string_view which) {
  for (const ResultFile& file : side.files) {
    if (&file == &side.files.front()) side.commit = file.commit;
    side.dirty = side.dirty || file.dirty;
    if (file.commit == side.commit) continue;
    throw InputError(fmt::format(
        "{}: rematch_commit: expected \"{}\" as in {}, for all files of the {} side come from one "
        "commit; got \"{}\"",
        file.path, side.commit, side.files.front().path, which, file.commit));
  }
}

std::string field_of(const ResultFile& file, const std::string& name) {
  const auto at = file.fingerprint.find(name);
  return at == file.fingerprint.end() ? "" : at->second;
}

void note_differences(const ResultFile& first, const ResultFile& file, Sides& sides) {
  std::vector<std::string> names;
  for (const auto& [name, value] : first.fingerprint) names.push_back(name);
  for (const auto& [name, value] : file.fingerprint) names.push_back(name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) {
    const std::string expected = field_of(first, name);
    const std::string got = field_of(file, name);
    const bool is_known =
        std::any_of(sides.differences.begin(), sides.differences.end(),
                    [&](const FingerprintDifference& d) { return d.field == name; });
    if (expected == got || is_known) continue;
    sides.differences.push_back({name, expected, got, first.path, file.path});
  }
}

void finish(Sides& sides) {
  take_commit(sides.base, "base");
  take_commit(sides.head, "new");
  bool any = false;
  for (const Side* side : {&sides.base, &sides.head}) {
    for (const ResultFile& file : side->files) {
      note_differences(sides.base.files.front(), file, sides);
      any = any || !file.benchmarks.empty();
    }
  }
  if (!any) {
    throw InputError(fmt::format("{}: benchmarks: expected at least one benchmark, got none",
                                 sides.base.files.front().path));
  }
  sides.by_repetition = sides.base.files.size() == 1 && sides.head.files.size() == 1;
  std::size_t most = sides.pairs.size();
  if (sides.by_repetition) {
    for (const BenchmarkRun& run : sides.base.files[0].benchmarks) {
      most = std::max(most, run.real_ns.size());
    }
  }
  if (most > kMaxPairs) {
    throw InputError(fmt::format("{}: expected at most {} pairs, got {}",
                                 sides.base.files.front().path, kMaxPairs, most));
  }
}

std::vector<ResultFile> read_all(const std::vector<std::string>& paths) {
  std::vector<ResultFile> files;
  files.reserve(paths.size());
  for (const std::string& path : paths) files.push_back(read_result_file(path));
  return files;
}

bool is_one_folder(const std::vector<std::string>& paths) {
  std::error_code ignored;
  return paths.size() == 1 && fs::is_directory(paths[0], ignored);
}

}  // namespace

Sides pair_sides(std::vector<ResultFile> base, std::vector<ResultFile> head) {
  if (base.empty() || head.empty()) {
    throw InputError("expected at least one result file on each side");
  }
  if (base.size() != head.size()) {
    throw InputError(fmt::format(
        "expected as many files on either side, for file i of the base is paired with file i of "
        "the new side; got {} and {}",
        base.size(), head.size()));
  }
  Sides sides;
  for (std::size_t i = 0; i < base.size(); ++i) sides.pairs.emplace_back(i, i);
  sides.base.files = std::move(base);
  sides.head.files = std::move(head);
  finish(sides);
  return sides;
}

Sides read_sides(const std::vector<std::string>& base, const std::vector<std::string>& head) {
  const std::vector<std::string> base_paths = expand_folders(base);
  const std::vector<std::string> head_paths = expand_folders(head);
  if (!is_one_folder(base) || !is_one_folder(head)) {
    return pair_sides(read_all(base_paths), read_all(head_paths));
  }
  Sides sides;
  sides.base.files = read_all(base_paths);
  sides.head.files = read_all(head_paths);
  for (std::size_t i = 0; i < base_paths.size(); ++i) {
    const fs::path partner = fs::path(head[0]) / fs::path(base_paths[i]).filename();
    const auto at = std::find(head_paths.begin(), head_paths.end(), partner.string());
    if (at == head_paths.end()) continue;
    sides.pairs.emplace_back(i, static_cast<std::size_t>(at - head_paths.begin()));
  }
  finish(sides);
  return sides;
}

ClockChoice choose_clock(const Sides& sides) {
  const ResultFile& first = sides.base.files.front();
  const bool is_one_thread =
      field_of(first, "rematch_threads") == "1" && field_of(first, "rematch_device") == "cpu";
  if (!is_one_thread || !sides.differences.empty()) return {};
  std::vector<double> shares;
  const auto share_of = [](const BenchmarkRun& run) {
    return usable(run.real_ns) && usable(run.cpu_ns) ? median(run.cpu_ns) / median(run.real_ns) : 1;
  };
  for (const auto& [i, j] : sides.pairs) {
    for (const BenchmarkRun& base : sides.base.files[i].benchmarks) {
      const BenchmarkRun* head = sides.head.files[j].find(base.name);
      if (head == nullptr || base.real_ns.empty() || head->real_ns.empty()) continue;
      shares.push_back(std::max(share_of(base), share_of(*head)));
    }
  }
  if (shares.empty()) return {};
  const double share = median(std::move(shares));
  return {share < 0.97 ? Clock::cpu : Clock::real, share};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::vector<double> log_ratios(const Sides& sides, std::string_view name, Clock clock) {
  std::vector<double> ratios;
  for (const auto& [i, j] : sides.pairs) {
    const BenchmarkRun* base = sides.base.files[i].find(name);
    const BenchmarkRun* head = sides.head.files[j].find(name);
    if (base == nullptr || head == nullptr) continue;
    const std::vector<double>& before = times(*base, clock);
    const std::vector<double>& after = times(*head, clock);
    if (!usable(before) || !usable(after)) continue;
    if (!sides.by_repetition) {
      ratios.push_back(std::log(median(after) / median(before)));
      continue;
    }
    for (std::size_t k = 0; k < std::min(before.size(), after.size()); ++k) {
      ratios.push_back(std::log(after[k] / before[k]));
    }
  }
  return ratios;
}

std::optional<double> median_time(const Side& side, std::string_view name, Clock clock) {
  std::vector<double> medians;
  for (const ResultFile& file : side.files) {
    const BenchmarkRun* run = file.find(name);
    if (run != nullptr && usable(times(*run, clock))) medians.push_back(median(times(*run, clock)));
  }
  if (medians.empty()) return std::nullopt;
  return median(medians);
}

}  // namespace rematch::compare
