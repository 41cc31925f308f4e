#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "properties/conform/page.h"

namespace rematch::conform {

/// A divergence of one implementation.
struct Sighting {
  const Column* column;
  const Divergence* divergence;
};

/// One entry of a framework's profiles, wherever its implementations show it; a divergence that is
/// new is a cause by itself. Valid as long as the page.
struct Cause {
  std::string framework;
  /// Not empty.
  std::vector<Sighting> seen;

  const Divergence& first() const { return *seen.front().divergence; }
  /// The worst of what the implementations show.
  Harm harm() const;
  bool reaches_a_gradient() const;
  bool is_silent() const;
  /// All laws that it violates anywhere.
  std::vector<std::string> laws() const;
  /// "mlx 69 of 1,000, mlx:closure 90 of 1,000": cases with wrong gradients, or all cases. `name`
  /// makes text of a subject's name.
  std::string where(bool gradients, std::string (*name)(std::string_view)) const;
};

/// In the order of in_order(), the worst first within a framework.
std::vector<Cause> causes_of(const Page& page);

/// Entries of profiles that no case of a framework's implementations showed, though some were
/// judged with them.
struct Unseen {
  std::string framework;
  std::vector<std::string> ids;
  std::uint64_t structures = 0;  ///< Judged by these implementations.
  /// Each of these judged at least kStructuresToConfirm, and the framework has no others that were
  /// not judged: the entries should have been seen, and may be true no longer.
  bool stale = true;
};
inline constexpr std::uint64_t kStructuresToConfirm = 200;

/// Entries of the same implementations are together. `every`: the names of all implementations.
std::vector<Unseen> unseen_in(const Page& page, const std::vector<std::string>& every = {});

}  // namespace rematch::conform
