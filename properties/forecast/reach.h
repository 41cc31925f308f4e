#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/forecast/site.h"
#include "properties/layers/enum_set.h"

namespace rematch {

/// What is wrong at a source: where other numbers come in than the plain run has, or other costs.
enum class Wrong : std::uint8_t {
  /// A recomputation computes other values than the forward that it repeats.
  recomputed,
  /// The forward under the plan computes other values than the plain run.
  forward,
  /// The backward of the layer makes other gradients.
  gradient,
  /// A recomputation moves the layer's state on once more.
  state,
  /// A recomputation moves the layer's random stream on.
  stream,
  /// A recomputation writes the layer's parameters.
  weight,
  /// The segment takes no part in autograd, or less than it should, and so nothing before it does.
  /// Reentrant segments behind it may then see nothing that requires grad.
  detached,
  /// The outermost segment around the layer runs another number of times, or in another order.
  runs,
  /// A backward goes on upstream of the segment with gradients that the plain run does not have.
  zeros,
  /// More memory is held.
  held,
  /// The backward of the layer reads memory that nothing wrote, so that equal runs differ, too.
  unwritten,
  /// A recomputation that fails leaves random streams and states elsewhere.
  failure,
  /// The backward of a compiled function reads a value otherwise than its forward did: layers are
  /// recomputed and make other gradients, and no segment says where that ends.
  compiled,
};
inline constexpr std::size_t kWrongCount = static_cast<std::size_t>(Wrong::compiled) + 1;
using Wrongs = EnumSet<Wrong, kWrongCount>;
/// "recomputed".
std::string_view to_string(Wrong wrong);

/// Everything that may differ because of a source: what lies downstream of it by data, by a random
/// stream, by a state that later forwards read, by a decision about shapes, or by weights that were
/// trained with wrong gradients. An abstract interpretation of the whole protocol, in which a value
/// is either right or may be wrong. Nothing upstream of the source, beside it or before it differs.
class Reach {
 public:
  /// `at`: by layer, whether it is a source. `geometry` is validate(c).
  Reach(const Case& c, const Geometry& geometry, const std::vector<bool>& at, Wrongs wrong);

  /// Whether what the law judges may differ there.
  bool contains(std::string_view law, const Site& site) const;

 private:
  class Run;

  std::set<std::tuple<std::string_view, int, int, int>> differ_;
};

}  // namespace rematch
