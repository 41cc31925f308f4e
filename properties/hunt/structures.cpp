#include "properties/hunt/structures.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "properties/layers/custom_layer.h"
#include "properties/record/mixed.h"

namespace rematch {
namespace {

/// Whether values may differ in what does not count.
template <class V>
inline constexpr bool kHasUncounted = std::is_same_v<V, ProtocolSpec> || std::is_same_v<V, Options>;

class StructureHash {
 public:
  std::uint64_t value() const { return value_; }

  void add(std::uint64_t word) { value_ = mixed(value_ ^ word); }
  void add(double number) { add(std::bit_cast<std::uint64_t>(number)); }
  void add(std::string_view text) {
    add(std::uint64_t{text.size()});
    for (const char c : text) add(std::uint64_t{static_cast<unsigned char>(c)});
  }
  template <class V>
  requires(std::is_enum_v<V> || std::is_integral_v<V>) void add(V value) {
    add(static_cast<std::uint64_t>(value));
  }
  template <class V>
  void add(const std::vector<V>& list) {
    add(std::uint64_t{list.size()});
    for (const V& entry : list) add(entry);
  }
  template <class V>
  void add(const std::optional<V>& entry) {
    add(entry.has_value());
    if (entry) add(*entry);
  }
  void add(const CustomLayer* layer) {
    add(layer == nullptr ? std::string_view() : std::string_view(layer->declaration));
  }
  void add(ValueRef v) {
    add(v.layer);
    add(v.output);
  }
  void add(const KeepSpec& keep) {
    add(keep.op);
    add(keep.index);
  }
  void add(const Options& options) {
    for (const auto& [name, value] : options) {
      if (name == kPromise || name == kRepeat) continue;
      add(std::string_view(name));
      add(std::string_view(value));
    }
  }
  void add(const LayerSpec& layer) {
    add(layer.kind);
    add_fields(layer);
  }
  template <class S>
  requires requires { FieldsOf<S>::list; }
  void add(const S& part) { add_fields(part); }

 private:
  /// Fields that have their usual value, as most have, take no time.
  template <class S>
  void add_fields(const S& part) {
    std::uint64_t position = 0;
    for_each_field(part, [&](const auto& field, const auto& value, const auto& usual) {
      ++position;
      if (field.varies ||
          (value == usual && !kHasUncounted<std::remove_cvref_t<decltype(value)>>)) {
        return;
      }
      add(position);
      add(value);
    });
    add(std::uint64_t{0});
  }

  std::uint64_t value_ = 0;
};

}  // namespace

std::uint64_t structure_of(const Case& c) {
  StructureHash hash;
  hash.add(c);
  return hash.value();
}

void Structures::add(std::uint64_t structure, LawSet laws) {
  const auto found = laws_.find(structure);
  if (found != laws_.end()) {
    found->second |= laws;
    return;
  }
  // One that is larger than the kMost smallest is not needed again, whatever comes.
  if (!is_exact() && structure > laws_.rbegin()->first) return;
  laws_.emplace(structure, laws);
  if (laws_.size() > kMost) laws_.erase(std::prev(laws_.end()));
}

void Structures::add(const Structures& other) {
  for (const auto& [structure, laws] : other.laws_) add(structure, laws);
}

std::uint64_t Structures::count() const {
  if (is_exact()) return laws_.size();
  const double largest = std::ldexp(static_cast<double>(laws_.rbegin()->first), -64);
  return static_cast<std::uint64_t>(std::llround((kMost - 1) / largest));
}

std::uint64_t Structures::judged_by(std::size_t law) const {
  const auto judged = [law](const auto& entry) { return entry.second[law]; };
  const auto of_kept =
      static_cast<std::uint64_t>(std::count_if(laws_.begin(), laws_.end(), judged));
  if (is_exact()) return of_kept;
  const double share = static_cast<double>(of_kept) / kMost;
  return static_cast<std::uint64_t>(std::llround(share * static_cast<double>(count())));
}

}  // namespace rematch
