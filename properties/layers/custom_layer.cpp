#include "properties/layers/custom_layer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

#include "properties/layers/geometry.h"

namespace rematch {
namespace {

constexpr std::string_view kForm =
    "\"NAME: N C -> N 2C; parameters, draws, draws elsewhere, state, backward\"";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// Cuts `text` at the first `mark`, and returns what stands before it; all of it without a mark.
std::string_view cut(std::string_view& text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  const std::string_view head = trimmed(text.substr(0, at));
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + mark.size());
  return head;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  CustomLayer parse() const {
    if (text_.size() > kLongestDeclaration) fail("at most 200 characters");
    CustomLayer layer;
    layer.declaration = text_;
    std::string_view rest = text_;
    std::string_view shapes = cut(rest, ";");
    layer.name = cut(shapes, ":");
    std::string_view operand = cut(shapes, "->");
    std::string_view result = trimmed(shapes);
    layer.any_shape = ends_in_dots(operand) && ends_in_dots(result);
    layer.operand = extents(operand);
    layer.result = extents(result);
    check_name(layer.name);
    check_shapes(layer);
    while (!trimmed(rest).empty()) read_word(cut(rest, ","), layer);
    return layer;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw std::invalid_argument("[layers] declaration \"" + std::string(text_.substr(0, 60)) +
                                "\": expected " + why + ", in the form " + std::string(kForm));
  }

  void check_name(std::string_view name) const {
    const auto usual = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
    };
    if (name.empty() || !std::all_of(name.begin(), name.end(), usual)) {
      fail("a name of letters, digits, '_', '-' and '.'");
    }
  }

  /// Cuts off "...".
  static bool ends_in_dots(std::string_view& text) {
    constexpr std::string_view kDots = "...";
    const bool ends = text.size() > kDots.size() && text.substr(text.size() - 3) == kDots;
    if (ends) text = trimmed(text.substr(0, text.size() - 3));
    return ends;
  }

  std::vector<SymbolicExtent> extents(std::string_view text) const {
    std::vector<SymbolicExtent> list;
    while (!text.empty()) {
      const std::string_view word = cut(text, " ");
      if (word.empty()) continue;
      SymbolicExtent e;
      const char* const last = word.data() + word.size();
      const auto [end, error] = std::from_chars(word.data(), last, e.factor);
      const bool number = error == std::errc();
      if (end != last) e.name = *end;
      const bool letter = end + 1 == last && e.name >= 'A' && e.name <= 'Z';
      const bool small = e.factor >= 1 && e.factor <= 4096;
      if (error == std::errc::result_out_of_range || !small || !(letter || (number && end == last)))
        fail("extents like N, 3 or 2C");
      list.push_back(e);
    }
    return list;
  }

  void check_shapes(const CustomLayer& layer) const {
    for (const auto* shape : {&layer.operand, &layer.result}) {
      if (layer.any_shape ? shape->size() != 1 : shape->size() < 2 || shape->size() > 4)
        fail("two shapes of 2 to 4 extents, or N ... for any");
    }
    const SymbolicExtent& batch = layer.operand.front();
    const SymbolicExtent& same = layer.result.front();
    if (batch.name == 0 || batch.factor != 1 || same.name != batch.name || same.factor != 1) {
      fail("the same letter for the batch in both shapes");
    }
    for (const SymbolicExtent& e : layer.result) {
      const bool known =
          e.name == 0 || std::any_of(layer.operand.begin(), layer.operand.end(),
                                     [&](const SymbolicExtent& o) { return o.name == e.name; });
      if (!known) fail("letters of the operand's shape in the result's");
    }
  }

  void read_word(std::string_view word, CustomLayer& layer) const {
    if (word == "parameters") {
      layer.parameters = true;
    } else if (word == "draws") {
      layer.draws = true;
    } else if (word == "draws elsewhere") {
      layer.draws = layer.draws_elsewhere = true;
    } else if (word == "state") {
      layer.state = true;
    } else if (word == "backward") {
      layer.backward = true;
    } else {
      fail("parameters, draws, draws elsewhere, state or backward after the shapes");
    }
  }

  std::string_view text_;
};

}  // namespace

std::vector<std::int64_t> CustomLayer::result_for(const Shape& x) const {
  if (any_shape) {
    std::vector<std::int64_t> same;
    for (int i = 0; i < x.rank(); ++i) same.push_back(x[i]);
    return same;
  }
  if (static_cast<std::size_t>(x.rank()) != operand.size()) return {};
  std::array<std::int64_t, 26> bound{};
  const auto value_of = [&](char letter) -> std::int64_t& {
    return bound[static_cast<std::size_t>(letter - 'A')];
  };
  for (std::size_t i = 0; i < operand.size(); ++i) {
    const auto [factor, letter] = operand[i];
    const std::int64_t extent = x[static_cast<int>(i)];
    if (letter == 0 ? extent != factor : extent % factor != 0) return {};
    if (letter == 0) continue;
    const std::int64_t value = extent / factor;
    if (value_of(letter) != 0 && value_of(letter) != value) return {};
    value_of(letter) = value;
  }
  std::vector<std::int64_t> extents;
  for (const auto [factor, letter] : result) {
    // Both are far below the square root of what fits.
    extents.push_back(letter == 0 ? factor : factor * value_of(letter));
  }
  return extents;
}

const CustomLayer* declared(std::string_view declaration) {
  static std::mutex mutex;
  static std::unordered_map<std::string, std::unique_ptr<const CustomLayer>> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(std::string(declaration));
  if (found != known.end()) return found->second.get();
  auto layer = std::make_unique<const CustomLayer>(Parser(declaration).parse());
  return known.emplace(declaration, std::move(layer)).first->second.get();
}

}  // namespace rematch
