#include "properties/hunt/profile.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "properties/case/json.h"
#include "properties/case/json_fields.h"
#include "properties/faults/fault.h"
#include "properties/hunt/like_fault.h"

namespace rematch {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kProfile = "profile";
constexpr int kProfileFormat = 1;
constexpr int kMostProfileNesting = kMaxCaseTextNesting + 8;
constexpr std::size_t kMostProfileBytes = std::size_t{1} << 20;
constexpr std::size_t kMostProfileEntries = 1024;
constexpr std::size_t kLongestProfileText = 4096;

std::optional<FailureKind> failure_named(std::string_view name) {
  for (int i = 1; i <= static_cast<int>(FailureKind::graph_dropped); ++i) {
    const auto kind = static_cast<FailureKind>(i);
    if (to_string(kind) == name) return kind;
  }
  return std::nullopt;
}

std::optional<Wrong> wrong_named(std::string_view name) {
  for (std::size_t i = 0; i < kWrongCount; ++i) {
    if (to_string(static_cast<Wrong>(i)) == name) return static_cast<Wrong>(i);
  }
  return std::nullopt;
}

KnownDivergence read_entry(const Json& json, const std::string& path) {
  JsonFields fields(kProfile, json, path);
  KnownDivergence entry;
  fields.read("id", entry.id, kLongestProfileText);
  fields.read("why", entry.why, kLongestProfileText);
  fields.read("reported", entry.reported, kLongestProfileText);
  fields.read("script", entry.script, kLongestProfileText);
  fields.read("plain_too", entry.plain_too);
  fields.read("moves_gradients", entry.moves_gradients);
  fields.read("since", entry.since, kLongestProfileText);
  fields.read("promised", entry.promised);
  fields.read("drops_nothing", entry.drops_nothing);
  if (const Json* at_most = fields.find("at_most")) {
    fields.scalar(*at_most, fields.path("at_most"), entry.at_most.emplace());
  }
  if (const Json* example = fields.find("example")) {
    entry.example = example->dump();
    try {
      (void)case_from_json(entry.example);
    } catch (const std::invalid_argument& error) {
      fields.fail(fields.path("example"), "a case", error.what());
    }
  }
  if (entry.id.empty()) fields.fail(fields.path("id"), "a name", "none");
  if (entry.why.empty()) fields.fail(fields.path("why"), "a sentence", "none");
  const auto read_names = [&](const char* field, std::string_view expected, auto named, auto add) {
    if (const Json* list = fields.find(field))
      fields.read_names(field, *list, expected, named, add);
  };
  const auto known_law = [](std::string_view name) -> std::optional<std::string> {
    return find_law(name) == nullptr ? std::nullopt : std::optional<std::string>(name);
  };
  read_names("laws", "a law (rematch laws)", known_law,
             [&](const std::string& law) { entry.laws.push_back(law); });
  read_names("when", "a feature", feature_named,
             [&](Feature feature) { entry.when.insert(feature); });
  read_names("unless", "a feature", feature_named,
             [&](Feature feature) { entry.unless.insert(feature); });
  const auto text = [](std::string_view s) {
    return s.empty() ? std::nullopt : std::optional<std::string>(s);
  };
  read_names("got", "a text", text, [&](const std::string& s) { entry.got.push_back(s); });
  read_names("any", "a feature", feature_named, [&](Feature f) { entry.any.insert(f); });
  read_names("at", "a layer, or what it does", text,
             [&](const std::string& s) { entry.at.push_back(s); });
  const auto segment_text = [](std::string_view s) {
    return is_segment_text(s) ? std::optional<std::string>(s) : std::nullopt;
  };
  read_names("in", "words about a segment", segment_text,
             [&](const std::string& s) { entry.in.push_back(s); });
  read_names("wrong", "what is wrong there", wrong_named,
             [&](Wrong wrong) { entry.wrong.push_back(wrong); });
  if (entry.laws.empty() && entry.wrong.empty()) {
    fields.fail(fields.path("laws"), "a law, or what is wrong", "neither");
  }
  read_names("inject", "an injected failure", failure_named,
             [&](FailureKind kind) { entry.inject.push_back(kind); });
  const auto known_fault = [](std::string_view id) -> std::optional<std::string> {
    const Fault* fault = find_fault(id);
    return fault == nullptr || !fault->runs() ? std::nullopt : std::optional<std::string>(id);
  };
  read_names("faults", "a fault that runs (rematch faults)", known_fault,
             [&](const std::string& id) { entry.faults.push_back(id); });
  const auto read_texts = [&](const char* field, std::string_view expected, auto& by_name) {
    const Json* const texts = fields.find(field);
    if (texts == nullptr) return;
    JsonFields named(kProfile, *texts, fields.path(field));
    for (const auto& [name, values] : texts->items()) {
      std::vector<std::string>& any = by_name[name];
      named.read_names(name.c_str(), values, expected, text,
                       [&](const std::string& s) { any.push_back(s); });
    }
  };
  read_texts("options", "a value of the option", entry.options);
  read_texts("versions", "a part of the version", entry.versions);
  fields.finish();
  return entry;
}

bool has_options(const Case& c, const KnownDivergence& entry) {
  return std::all_of(entry.options.begin(), entry.options.end(), [&](const auto& option) {
    const auto& [name, values] = option;
    return std::any_of(values.begin(), values.end(),
                       [&](const std::string& value) { return is_set(c.options, name, value); });
  });
}

bool meets(const KnownDivergence& entry, const Case& c, const FeatureSet& features) {
  if (!features.contains_all(entry.when)) return false;
  if (features.without(entry.unless) != features) return false;
  if (!entry.any.empty() && features.without(entry.any) == features) return false;
  if (!has_options(c, entry)) return false;
  return entry.inject.empty() || std::find(entry.inject.begin(), entry.inject.end(),
                                           c.protocol.failure.kind) != entry.inject.end();
}

/// The number behind the word; -1: there is none.
int number_after(std::string_view text, std::string_view word) {
  const std::size_t at = text.find(word);
  int number = -1;
  if (at != std::string_view::npos) {
    std::from_chars(text.data() + at + word.size(), text.data() + text.size(), number);
  }
  return number;
}

/// What the law counts: it stands before the number in the place of a violation.
std::string_view counted_by(std::string_view law) {
  if (law.starts_with("rng-")) return "stream ";
  if (law == "outputs") return "output ";
  if (law == "losses") return "further loss ";
  if (law == "input-gradients") return "further model input ";
  if (law == "buffers-after-step") return "buffer ";
  if (law.starts_with("parameter") || law == "hooks") return "parameter ";
  return "layer ";
}

std::vector<Site> differing_in(const Violation& v) {
  if (!v.sites.empty()) return v.sites;
  const std::string_view counted = counted_by(v.law);
  Site site{number_after(v.place, "step "), number_after(v.place, "microbatch "),
            number_after(v.place, counted)};
  if (site.step >= 0) site.microbatch = std::max(site.microbatch, 0);
  // The first one bears no number.
  if (site.step >= 0 && (counted.starts_with("further ") || v.law == "reevaluation")) {
    site.index = std::max(site.index, 0);
  }
  return {site};
}

bool has_said(const KnownDivergence& entry, const Violation& v) {
  return entry.got.empty() || std::any_of(entry.got.begin(), entry.got.end(), [&](const auto& s) {
           return v.got.find(s) != std::string::npos;
         });
}

bool lists(const KnownDivergence& entry, std::string_view law) {
  return std::find(entry.laws.begin(), entry.laws.end(), law) != entry.laws.end();
}

/// Whether it names the promise that was broken, "(second_derivative)", whatever the case has.
bool names_promise(const KnownDivergence& entry, const Violation& v) {
  return v.law == "promises" && lists(entry, v.law) &&
         std::any_of(entry.got.begin(), entry.got.end(), [&](const std::string& text) {
           return text.starts_with('(') && v.got.find(text) != std::string::npos;
         });
}

/// Whether the law is about single layers, of which the first that differs is where it begins.
bool is_about_layers(std::string_view law) {
  return law == "recomputed-values" || law == "dropout-masks";
}

/// Whether the case has a layer of the entry, and the site lies where the entry says, or
/// downstream.
bool is_reached(const KnownDivergence& entry, const Violation& v, const Site& site, const Case& c) {
  const bool listed = lists(entry, v.law) && has_said(entry, v);
  const bool may_follow = !entry.wrong.empty() && (!entry.laws.empty() || has_said(entry, v));
  if (!listed && !may_follow) return false;
  if (entry.at.empty() && entry.in.empty() && listed) return true;
  const Geometry geometry = validate(c);
  const std::vector<bool> at = sites_of(entry.at, entry.in, c, geometry);
  if (std::find(at.begin(), at.end(), true) == at.end()) return false;
  const auto index = static_cast<std::size_t>(site.index);
  if (listed && (!is_about_layers(v.law) || site.index < 0 || (index < at.size() && at[index]))) {
    return true;
  }
  if (!may_follow) return false;
  Wrongs wrong;
  for (const Wrong w : entry.wrong) wrong.insert(w);
  return Reach(c, geometry, at, wrong).contains(v.law, site);
}

}  // namespace

std::string KnownDivergence::report() const {
  std::string text = promised ? "not reported" : "";
  if (!reported.empty()) {
    const bool is_address = reported.starts_with("https://") || !promised;
    text = (is_address ? promised ? "reported: " : "see " : "") + reported;
  }
  if (!since.empty()) text += (text.empty() ? "since " : ", since ") + since;
  return text;
}

Profile Profile::on(Versions versions) const {
  Profile copy = *this;
  copy.versions_ = std::move(versions);
  return copy;
}

Profile Profile::everywhere() const {
  Profile copy = *this;
  copy.is_of_any_version_ = true;
  return copy;
}

bool Profile::holds(std::size_t entry) const {
  if (is_of_any_version_) return true;
  const auto& wanted = entries_.at(entry).versions;
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& one) {
    const auto declared = versions_.find(one.first);
    return declared != versions_.end() &&
           std::any_of(one.second.begin(), one.second.end(), [&](const std::string& part) {
             return declared->second.find(part) != std::string::npos;
           });
  });
}

std::optional<std::size_t> Profile::explains(const Violation& violation, const Case& c,
                                             const FeatureSet& features, std::size_t from) const {
  const std::vector<Site> sites = differing_in(violation);
  std::optional<std::size_t> first;
  Violation here = violation;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (!violation.distances.empty()) here.distance = violation.distances[i];
    const auto entry = explains_at(sites[i], here, c, features, first ? 0 : from);
    if (!entry) return std::nullopt;
    if (!first) first = entry;
  }
  return first;
}

std::optional<std::size_t> Profile::explains_at(const Site& site, const Violation& violation,
                                                const Case& c, const FeatureSet& features,
                                                std::size_t from) const {
  for (std::size_t i = from; i < entries_.size(); ++i) {
    const KnownDivergence& entry = entries_[i];
    // A violation without a distance (a missing array, say) is more than a difference of values.
    const bool near =
        !entry.at_most || (violation.distance && *violation.distance <= *entry.at_most);
    if (names_promise(entry, violation) && holds(i)) return i;
    const bool fits = !entry.drops_nothing || violation.beyond_undropped.value_or(0) <= 0;
    if (!near || !fits || !holds(i) || !meets(entry, c, features)) continue;
    if (!is_reached(entry, violation, site, c)) continue;
    const bool is_other =
        !entry.faults.empty() &&
        std::all_of(entry.faults.begin(), entry.faults.end(), [&](const std::string& id) {
          return contradicts(violation, c, *find_fault(id));
        });
    if (!is_other) return i;
  }
  return std::nullopt;
}

const Violation* Profile::first_unexplained(const Verdicts& verdicts, const Case& c,
                                            const FeatureSet& features) const {
  for (const Violation& violation : verdicts.violations) {
    if (!explains(violation, c, features)) return &violation;
  }
  return nullptr;
}

Profile load_profile(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::invalid_argument(file.string() + ": expected a profile, got no file");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  try {
    const Json json = parse_json(kProfile, text, kMostProfileBytes, kMostProfileNesting);
    JsonFields fields(kProfile, json, "");
    fields.need_version("format", kProfileFormat);
    std::vector<KnownDivergence> entries;
    std::string base;
    fields.read("extends", base, kLongestProfileText);
    if (!base.empty()) {
      // A file of the same folder, so that no chain of profiles ends elsewhere, or never.
      if (base != std::filesystem::path(base).filename() || base >= file.filename()) {
        fields.fail("extends", "a file beside this one that comes before it by name", base);
      }
      entries = load_profile(file.parent_path() / base).entries();
    }
    const Json& list = fields.need("known");
    need_array(kProfile, list, "known", kMostProfileEntries);
    for (std::size_t i = 0; i < list.size(); ++i) {
      entries.push_back(read_entry(list[i], indexed("known", i)));
    }
    fields.finish();
    return Profile(std::move(entries));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(file.string() + ": " + error.what());
  }
}

}  // namespace rematch
