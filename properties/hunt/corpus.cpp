#include "properties/hunt/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "engine/checkpoint/tensor_hash.h"
#include "properties/case/json.h"
#include "properties/generate/shrink.h"
#include "properties/hunt/regressions.h"

namespace rematch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kReach = "reach-";
constexpr std::string_view kBroke = "broke-";

/// "broke-LAW": what cases of equal features must share to be one as good as the other.
std::string_view kept_for(const CorpusCase& c) {
  return std::string_view(c.name).substr(0, c.name.rfind('-'));
}

bool has_layer(const Case& c, const CustomLayer* layer) {
  return std::any_of(c.layers.begin(), c.layers.end(),
                     [&](const LayerSpec& l) { return l.layer == layer; });
}

/// Whatever implements `c` implements `other`.
bool needs_all_of(const CorpusCase& c, const CorpusCase& other) {
  return c.features.contains_all(other.features) &&
         std::all_of(other.c.layers.begin(), other.c.layers.end(), [&](const LayerSpec& l) {
           return l.layer == nullptr || has_layer(c.c, l.layer);
         });
}

CorpusCase named(const Case& c, std::string_view prefix) {
  const std::string text = to_json(c);
  return {fmt::format("{}{:016x}.json", prefix, hash_bytes(std::as_bytes(std::span(text)))), c,
          features_of(c, validate(c))};
}

/// A total order: few features, then simple, then by content.
auto size_of(const CorpusCase& c) {
  return std::tuple(c.features.size(), complexity(c.c).parts, c.name);
}

/// In order of size, each once.
Corpus sorted(Corpus corpus) {
  std::vector<std::pair<decltype(size_of(corpus[0])), std::size_t>> order;
  for (std::size_t i = 0; i < corpus.size(); ++i) order.emplace_back(size_of(corpus[i]), i);
  std::sort(order.begin(), order.end());
  Corpus result;
  for (const auto& [size, i] : order) {
    if (result.empty() || result.back().name != corpus[i].name) {
      result.push_back(std::move(corpus[i]));
    }
  }
  return result;
}

/// Some that reach all that `known` lacks and `corpus` has: again and again the one that adds most,
/// of equal ones the smallest.
Corpus cover(PairSet known, const Corpus& corpus) {
  Corpus rest = sorted(corpus);
  Corpus chosen;
  for (;;) {
    std::size_t most = 0;
    std::size_t best = 0;
    // What adds nothing now will add nothing later.
    std::erase_if(rest, [&](const CorpusCase& c) { return known.missing(c.features) == 0; });
    if (rest.empty()) return chosen;
    for (std::size_t i = 0; i < rest.size(); ++i) {
      const std::size_t gain = known.missing(rest[i].features);
      if (gain > most) std::tie(most, best) = std::pair(gain, i);
    }
    known.add(rest[best].features);
    chosen.push_back(std::move(rest[best]));
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(best));
  }
}

/// For each pair, the case with the most features that has it, of equal ones the first: few of them
/// cover all, and which they are is known after one look at each case.
class Richest {
 public:
  /// For pairs that `known` lacks.
  void offer(const FeatureSet& features, std::uint64_t index, const PairSet& known) {
    const Entry entry{features.size(), index};
    features.for_each([&](Feature f) {
      known.missing_with(f, features).for_each([&](Feature other) {
        offer(static_cast<std::size_t>(f) * kFeatureCount + static_cast<std::size_t>(other), entry);
      });
    });
  }
  void add(const Richest& other) {
    for (std::size_t pair = 0; pair < best_.size(); ++pair) {
      if (other.best_[pair]) offer(pair, *other.best_[pair]);
    }
  }
  std::set<std::uint64_t> indices() const {
    std::set<std::uint64_t> indices;
    for (const std::optional<Entry>& entry : best_) {
      if (entry) indices.insert(entry->index);
    }
    return indices;
  }

 private:
  struct Entry {
    std::size_t features = 0;
    std::uint64_t index = 0;
  };

  void offer(std::size_t pair, const Entry& entry) {
    std::optional<Entry>& best = best_[pair];
    if (!best || entry.features > best->features ||
        (entry.features == best->features && entry.index < best->index)) {
      best = entry;
    }
  }

  std::vector<std::optional<Entry>> best_ =
      std::vector<std::optional<Entry>>(kFeatureCount * kFeatureCount);
};

}  // namespace

FeatureSet PairSet::missing_with(Feature feature, const FeatureSet& features) const {
  return features.without(rows_[static_cast<std::size_t>(feature)]);
}

std::size_t PairSet::missing(const FeatureSet& features) const {
  std::size_t count = 0;
  features.for_each([&](Feature f) { count += missing_with(f, features).size(); });
  return count;
}

void PairSet::add(const FeatureSet& features) {
  features.for_each([&](Feature f) {
    FeatureSet& row = rows_[static_cast<std::size_t>(f)];
    missing_with(f, features).for_each([&](Feature other) { row.insert(other); });
  });
}

bool PairSet::contains_all(const PairSet& other) const {
  for (std::size_t i = 0; i < kFeatureCount; ++i) {
    if (!rows_[i].contains_all(other.rows_[i])) return false;
  }
  return true;
}

std::size_t PairSet::size() const {
  std::size_t ordered = 0;
  std::size_t alone = 0;
  for (std::size_t i = 0; i < kFeatureCount; ++i) {
    ordered += rows_[i].size();
    alone += rows_[i].contains(static_cast<Feature>(i)) ? 1 : 0;
  }
  return (ordered + alone) / 2;
}

CorpusCase reaching_case(const Case& c) { return named(c, kReach); }

CorpusCase broken_case(const Case& c, std::string_view law) {
  return named(c, fmt::format("{}{}-", kBroke, law));
}

Corpus load_corpus(const fs::path& folder, std::vector<std::string>& unreadable) {
  Corpus corpus;
  for (const fs::path& file : regression_files(folder)) {
    try {
      const Case c = load_case(file);
      corpus.push_back({file.filename().string(), c, features_of(c, validate(c))});
    } catch (const std::invalid_argument& error) {
      // Another hunt may have removed it meanwhile.
      if (fs::exists(file)) unreadable.emplace_back(error.what());
    }
  }
  return corpus;
}

std::size_t save_corpus(const Corpus& corpus, const fs::path& folder) {
  std::size_t saved = 0;
  for (const CorpusCase& c : corpus) {
    if (fs::exists(folder / c.name)) continue;
    save_case(c.c, folder / c.name);
    ++saved;
  }
  return saved;
}

bool is_reaching(const CorpusCase& c) { return c.name.starts_with(kReach); }
bool is_broken(const CorpusCase& c) { return c.name.starts_with(kBroke); }

PairSet pairs_of(const Corpus& corpus) {
  PairSet pairs;
  for (const CorpusCase& c : corpus) pairs.add(c.features);
  return pairs;
}

Corpus minimised(const Corpus& corpus) {
  Corpus kept;
  for (CorpusCase& c : sorted(corpus)) {
    if (is_reaching(c)) {
      // Of those that stay, which are smaller.
      PairSet smaller;
      for (const CorpusCase& k : kept) {
        if (is_reaching(k) && needs_all_of(c, k)) smaller.add(k.features);
      }
      if (smaller.missing(c.features) > 0) kept.push_back(std::move(c));
    } else if (is_broken(c)) {
      const bool there = std::any_of(kept.begin(), kept.end(), [&](const CorpusCase& k) {
        return kept_for(k) == kept_for(c) && k.features == c.features && needs_all_of(c, k);
      });
      if (!there) kept.push_back(std::move(c));
    }
  }
  return kept;
}

Corpus within(const Corpus& corpus, const Scope& scope) {
  Corpus result;
  for (const CorpusCase& c : corpus) {
    if (lacking(scope, c.c).empty()) result.push_back(c);
  }
  return result;
}

Corpus to_run(const Corpus& corpus) {
  Corpus result;
  Corpus reaching;
  for (const CorpusCase& c : corpus) (is_reaching(c) ? reaching : result).push_back(c);
  for (CorpusCase& c : cover(pairs_of(result), reaching)) result.push_back(std::move(c));
  return result;
}

Corpus reaching_more(const PairSet& known, std::uint64_t count,
                     const std::function<Case(std::uint64_t)>& generate, int jobs) {
  // Each thread has a share of the cases, and whichever way they are shared, the richest of all are
  // the same.
  const auto share = [&](int job) {
    Richest richest;
    const auto step = static_cast<std::uint64_t>(jobs);
    for (auto i = static_cast<std::uint64_t>(job); i < count; i += step) {
      const Case c = generate(i);
      richest.offer(features_of(c, validate(c)), i, known);
    }
    return richest;
  };
  std::vector<std::future<Richest>> shares;
  for (int job = 0; job < jobs; ++job) {
    shares.push_back(std::async(std::launch::async, share, job));
  }
  Richest richest;
  for (std::future<Richest>& of_thread : shares) richest.add(of_thread.get());
  Corpus candidates;
  for (const std::uint64_t index : richest.indices()) {
    candidates.push_back(reaching_case(generate(index)));
  }
  return cover(known, candidates);
}

}  // namespace rematch
