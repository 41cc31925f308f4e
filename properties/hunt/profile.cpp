#include "properties/hunt/profile.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>

#include "engine/checkpoint/tensor_hash.h"
#include "properties/case/json_fields.h"
#include "properties/faults/fault.h"
#include "properties/hunt/like_fault.h"
#include "properties/layers/custom_layer.h"

namespace rematch {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kProfile = "profile";
constexpr int kProfileFormat = 1;
constexpr int kMostProfileNesting = 8;
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

KnownDivergence read_entry(const Json& json, const std::string& path) {
  JsonFields fields(kProfile, json, path);
  KnownDivergence entry;
  fields.read("id", entry.id, kLongestProfileText);
  fields.read("why", entry.why, kLongestProfileText);
  fields.read("reported", entry.reported, kLongestProfileText);
  fields.read("since", entry.since, kLongestProfileText);
  fields.read("promised", entry.promised);
  fields.read("drops_nothing", entry.drops_nothing);
  if (const Json* at_most = fields.find("at_most")) {
    fields.scalar(*at_most, fields.path("at_most"), entry.at_most.emplace());
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
  if (entry.laws.empty()) fields.fail(fields.path("laws"), "at least one law", "none");
  read_names("when", "a feature", feature_named,
             [&](Feature feature) { entry.when.insert(feature); });
  read_names("unless", "a feature", feature_named,
             [&](Feature feature) { entry.unless.insert(feature); });
  const auto text = [](std::string_view s) {
    return s.empty() ? std::nullopt : std::optional<std::string>(s);
  };
  read_names("got", "a text", text, [&](const std::string& s) { entry.got.push_back(s); });
  read_names("layers", "the name of a custom layer", text,
             [&](const std::string& s) { entry.layers.push_back(s); });
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

bool has_custom_layer(const Case& c, const std::vector<std::string>& names) {
  return std::any_of(c.layers.begin(), c.layers.end(), [&](const LayerSpec& l) {
    return l.layer != nullptr && std::any_of(names.begin(), names.end(), [&](const auto& name) {
             return name == l.layer->name || name == l.layer->family();
           });
  });
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
  if (!entry.layers.empty() && !has_custom_layer(c, entry.layers)) return false;
  if (!has_options(c, entry)) return false;
  return entry.inject.empty() || std::find(entry.inject.begin(), entry.inject.end(),
                                           c.protocol.failure.kind) != entry.inject.end();
}

}  // namespace

std::string KnownDivergence::report() const {
  std::string text = promised ? "not reported" : "";
  if (!reported.empty()) text = (promised ? "reported: " : "see ") + reported;
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
  for (std::size_t i = from; i < entries_.size(); ++i) {
    const KnownDivergence& entry = entries_[i];
    const bool named =
        std::find(entry.laws.begin(), entry.laws.end(), violation.law) != entry.laws.end();
    // A violation without a distance (a missing array, say) is more than a difference of values.
    const bool near =
        !entry.at_most || (violation.distance && *violation.distance <= *entry.at_most);
    const bool said =
        entry.got.empty() || std::any_of(entry.got.begin(), entry.got.end(), [&](const auto& text) {
          return violation.got.find(text) != std::string::npos;
        });
    const bool fits = !entry.drops_nothing || violation.beyond_undropped.value_or(0) <= 0;
    if (!named || !near || !fits || !said || !holds(i) || !meets(entry, c, features)) continue;
    const auto is_like = [&](const std::string& id) {
      return is_like_fault(violation, c, features, *find_fault(id));
    };
    if (entry.faults.empty() || std::any_of(entry.faults.begin(), entry.faults.end(), is_like)) {
      return i;
    }
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
    std::uint64_t hash = hash_bytes(std::as_bytes(std::span(text)));
    std::string base;
    fields.read("extends", base, kLongestProfileText);
    if (!base.empty()) {
      // A file of the same folder, so that no chain of profiles ends elsewhere, or never.
      if (base != std::filesystem::path(base).filename() || base >= file.filename()) {
        fields.fail("extends", "a file beside this one that comes before it by name", base);
      }
      const Profile extended = load_profile(file.parent_path() / base);
      entries = extended.entries();
      hash += extended.text_hash();
    }
    const Json& list = fields.need("known");
    need_array(kProfile, list, "known", kMostProfileEntries);
    for (std::size_t i = 0; i < list.size(); ++i) {
      entries.push_back(read_entry(list[i], indexed("known", i)));
    }
    fields.finish();
    return Profile(std::move(entries), hash, file.parent_path());
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(file.string() + ": " + error.what());
  }
}

}  // namespace rematch
