#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>

#include "properties/case/policy.h"
#include "properties/hunt/profile.h"
#include "properties/layers/custom_layer.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

/// A segment, and what is around it.
struct Surroundings {
  const Case& c;
  const SegmentSpec& segment;
  bool nested = false;
};

struct Word {
  std::string_view name;
  bool (*is_true)(const Surroundings&);
};

constexpr std::array kWords{
    Word{"checkpointed", [](const Surroundings&) { return true; }},
    Word{"reentrant",
         [](const Surroundings& s) { return s.segment.choice.variant == Variant::reentrant; }},
    Word{"non_reentrant",
         [](const Surroundings& s) { return s.segment.choice.variant == Variant::non_reentrant; }},
    Word{"early_stop",
         [](const Surroundings& s) {
           return s.segment.choice.variant == Variant::non_reentrant && s.segment.choice.early_stop;
         }},
    Word{"selective",
         [](const Surroundings& s) {
           const bool may = s.segment.choice.variant == Variant::non_reentrant &&
                            s.segment.nested.empty() && policy_may_keep(s.c.options);
           return may || !s.segment.choice.keep.empty();
         }},
    Word{"fresh", [](const Surroundings& s) { return !s.segment.choice.preserve_rng; }},
    Word{"nested", [](const Surroundings& s) { return s.nested; }},
    Word{"dictionary",
         [](const Surroundings& s) { return s.segment.choice.arguments == Arguments::dictionary; }},
    Word{"keywords",
         [](const Surroundings& s) { return s.segment.choice.arguments == Arguments::keywords; }},
    Word{"emptied",
         [](const Surroundings& s) { return s.segment.choice.arguments == Arguments::emptied; }},
    Word{"dictionary_outputs",
         [](const Surroundings& s) { return s.segment.choice.nested_outputs; }},
};

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  return {std::istream_iterator<std::string>(in), {}};
}

const Word* find_word(std::string_view name) {
  const auto* const found =
      std::find_if(kWords.begin(), kWords.end(), [&](const Word& w) { return w.name == name; });
  return found == kWords.end() ? nullptr : found;
}

bool is_in(const std::vector<std::string>& texts, const Surroundings& s) {
  return std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
    const std::vector<std::string> words = words_of(text);
    return std::all_of(words.begin(), words.end(),
                       [&](const std::string& word) { return find_word(word)->is_true(s); });
  });
}

void mark(const std::vector<std::string>& texts, const Case& c,
          const std::vector<SegmentSpec>& segments, bool nested, std::vector<bool>& within) {
  for (const SegmentSpec& s : segments) {
    if (is_in(texts, {c, s, nested || !s.nested.empty()})) {
      std::fill(within.begin() + s.begin, within.begin() + s.end, true);
    }
    mark(texts, c, s.nested, true, within);
  }
}

bool is_behind_kept_draw(const Case& c, const std::vector<SegmentSpec>& segments, int layer) {
  const auto draws = [&](int i) {
    return draws_in(c.layers[static_cast<std::size_t>(i)], c.protocol.train);
  };
  return draws(layer) && std::any_of(segments.begin(), segments.end(), [&](const SegmentSpec& s) {
           if (layer < s.begin || layer >= s.end) return false;
           if (is_behind_kept_draw(c, s.nested, layer)) return true;
           if (kept_by_policy(c, s, layer)) return false;
           for (int i = s.begin; i < layer; ++i) {
             if (draws(i) && kept_by_policy(c, s, i)) return true;
           }
           return false;
         });
}

bool shares_cast(const Case& c, const Geometry& g, int layer) {
  const auto casts = [&](std::size_t i, int parameter) {
    const auto& own = g.layer_parameters[i];
    return layer_of(c.layers[i]).low_precision &&
           std::find(own.begin(), own.end(), parameter) != own.end();
  };
  const auto at = static_cast<std::size_t>(layer);
  return std::any_of(g.layer_parameters[at].begin(), g.layer_parameters[at].end(), [&](int p) {
    std::size_t users = 0;
    for (std::size_t i = 0; i < c.layers.size(); ++i) users += casts(i, p) ? 1 : 0;
    return casts(at, p) && users >= 2;
  });
}

bool is_named(std::string_view name, const Case& c, const Geometry& g, int layer) {
  const LayerSpec& l = c.layers[static_cast<std::size_t>(layer)];
  const bool trains = trains_in(l, c.protocol.train);
  if (l.layer != nullptr && (name == l.layer->name || name == l.layer->family())) return true;
  if (l.layer != nullptr && name.ends_with('*')) {
    return l.layer->name.starts_with(name.substr(0, name.size() - 1));
  }
  if (l.layer == nullptr && name == to_string(l.kind)) return true;
  if (name == "stateful") {
    return trains && (l.layer != nullptr ? l.layer->state : layer_of(l).stateful);
  }
  if (name == "reads state") return trains && layer_of(l).reads_state;
  if (name == "casts") return layer_of(l).low_precision || layer_of(l).has_products;
  if (name == "draws") return draws_in(l, c.protocol.train);
  if (name == "draws elsewhere") {
    const bool elsewhere = l.stream != 0 || (l.layer != nullptr && l.layer->draws_elsewhere);
    return draws_in(l, c.protocol.train) && elsewhere;
  }
  if (name == "draws behind a kept draw") return is_behind_kept_draw(c, segments_of(c), layer);
  return name == "shares a cast" && shares_cast(c, g, layer);
}

}  // namespace

std::vector<bool> sites_of(const std::vector<std::string>& at, const std::vector<std::string>& in,
                           const Case& c, const Geometry& geometry) {
  std::vector<bool> sites(c.layers.size(), in.empty());
  if (!in.empty()) mark(in, c, segments_of(c), false, sites);
  for (std::size_t i = 0; i < sites.size(); ++i) {
    sites[i] =
        sites[i] && (at.empty() || std::any_of(at.begin(), at.end(), [&](const std::string& name) {
                       return is_named(name, c, geometry, static_cast<int>(i));
                     }));
  }
  return sites;
}

bool is_segment_text(std::string_view text) {
  const std::vector<std::string> words = words_of(text);
  return !words.empty() && std::all_of(words.begin(), words.end(), [](const std::string& word) {
    return find_word(word) != nullptr;
  });
}

}  // namespace rematch
