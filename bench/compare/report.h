#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/compare/comparison.h"
#include "bench/compare/history.h"
#include "bench/compare/timelines.h"
#include "properties/output/terminal.h"

namespace rematch::compare {

/// What a report may show beside the comparison.
struct Extras {
  const TimelinePairs* timelines = nullptr;
  const HistoryReport* history = nullptr;
};

/// For a terminal of `width` columns. Lines are wrapped and columns of the table left out where
/// they do not fit. Ends in a newline, as all reports do.
std::string text_report(const Comparison& comparison, int width, const cli::Paint& paint);
std::string json_report(const Comparison& comparison);
/// For a comment on a pull request: verdict first, regressions first, the rest folded. Never longer
/// than kLongestComment.
std::string markdown_report(const Comparison& comparison);
inline constexpr std::size_t kLongestComment = 60000;
/// Escapes `text` for Markdown: it ends no table cell, mentions no user, and contains no HTML.
std::string markdown_text(std::string_view text);
/// One page that needs nothing but itself: no network, no script.
std::string html_report(const Comparison& comparison, const Extras& extras);

/// Indices of the benchmarks in the order of the tables: slower, unsure, faster, same, not
/// compared; within these as they come.
std::vector<std::size_t> rows_in_order(const Comparison& comparison);

/// `text` in lines of at most `width` columns, each of them after the first indented.
std::string wrapped(const std::string& text, int width, int indent);

}  // namespace rematch::compare
