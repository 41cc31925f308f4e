#pragma once

#include <string>
#include <vector>

#include "properties/conform/page.h"

namespace rematch::conform {

/// With its thousands apart.
std::string number(std::uint64_t cases);

/// How much of each kind a page has.
struct Summary {
  std::uint64_t fresh = 0;
  std::uint64_t known = 0;
  std::uint64_t not_promised = 0;
  /// Subjects that were not judged, or not as they should have been.
  std::uint64_t problems = 0;
};
Summary summary_of(const Page& page);

/// Sentences that every format has, without markup.
std::string headline(const Page& page);
std::string subtitle(const Page& page);
/// Which state of Rematch judged: the one of most implementations, and for each other one of which;
/// empty if none is named.
std::string provenance(const Page& page);
std::string meaning_of(Mark mark);
/// The mark of a topic and what it rests on: "kept 512", "known 42 of 1,000", "too few 12".
std::string cell_text(const TopicCell& cell);
/// The columns in the order of a page: by framework, those that most people use first.
std::vector<const Column*> in_order(const Page& page);
/// Names in one line.
std::string list_text(const std::vector<std::string>& names);

}  // namespace rematch::conform
