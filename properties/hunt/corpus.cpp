#include "properties/hunt/corpus.h"

#include <algorithm>
#include <future>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "properties/generate/shrink.h"

namespace rematch {
namespace {

/// Few features first, then simple cases, then early ones.
void sort_by_size(Corpus& corpus) {
  const auto size_of = [](const CorpusCase& c) {
    return std::tuple(c.features.size(), complexity(c.c).parts, c.index);
  };
  std::sort(corpus.begin(), corpus.end(),
            [&](const CorpusCase& a, const CorpusCase& b) { return size_of(a) < size_of(b); });
}

/// Some that have all pairs of `rest`: again and again the one that adds most, of equal ones the
/// smallest.
Corpus cover(Corpus rest) {
  sort_by_size(rest);
  PairSet known;
  Corpus chosen;
  for (;;) {
    std::size_t most = 0;
    std::size_t best = 0;
    // A case that adds nothing now will add nothing later.
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
  void offer(const FeatureSet& features, std::uint64_t index) {
    const Entry entry{features.size(), index};
    features.for_each([&](Feature f) {
      features.for_each([&](Feature other) {
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

std::size_t PairSet::missing(const FeatureSet& features) const {
  std::size_t count = 0;
  features.for_each(
      [&](Feature f) { count += features.without(rows_[static_cast<std::size_t>(f)]).size(); });
  return count;
}

void PairSet::add(const FeatureSet& features) {
  features.for_each([&](Feature f) {
    FeatureSet& row = rows_[static_cast<std::size_t>(f)];
    features.for_each([&](Feature other) { row.insert(other); });
  });
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

Corpus corpus_of(std::uint64_t count, const std::function<Case(std::uint64_t)>& generate,
                 int jobs) {
  // Each thread has a share of the cases, and whichever way they are shared, the richest of all are
  // the same.
  const auto share = [&](int job) {
    Richest richest;
    const auto step = static_cast<std::uint64_t>(jobs);
    for (auto i = static_cast<std::uint64_t>(job); i < count; i += step) {
      const Case c = generate(i);
      richest.offer(features_of(c, validate(c)), i);
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
    const Case c = generate(index);
    candidates.push_back({index, c, features_of(c, validate(c))});
  }
  return cover(std::move(candidates));
}

PairSet pairs_of(const Corpus& corpus) {
  PairSet pairs;
  for (const CorpusCase& c : corpus) pairs.add(c.features);
  return pairs;
}

}  // namespace rematch
