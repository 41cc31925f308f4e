#include "properties/cli/page_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "properties/case/json.h"
#include "properties/cli/commands.h"

namespace rematch::cli {

namespace fs = std::filesystem;
using conform::Column;
using conform::Divergence;
using conform::Page;

void make_page_folders(const std::string& out) {
  std::error_code error;
  for (const char* folder : {"cases", "scripts"}) {
    if (!error) fs::create_directories(fs::path(out) / folder, error);
  }
  if (error) throw UsageError(fmt::format("--out: cannot make {}: {}", out, error.message()));
}

void write_page(const std::string& out, const Page& page) {
  if (out.empty()) return;
  write_text(fs::path(out) / "conform.json", conform::page_json(page));
  write_text(fs::path(out) / "conform.md", conform::page_markdown(page));
}

void put(Page& page, Column column) {
  const auto same = std::find_if(page.columns.begin(), page.columns.end(),
                                 [&](const Column& c) { return c.subject == column.subject; });
  if (same != page.columns.end()) {
    *same = std::move(column);
  } else {
    page.columns.push_back(std::move(column));
  }
}

Page page_from_files(const std::vector<std::string>& files, const std::string& out) {
  Page page;
  for (const std::string& file : files) {
    Page from = conform::page_from_json(text_in(file));
    if (file != files.front() && (from.seed != page.seed || from.mix != page.mix)) {
      throw UsageError(
          fmt::format("--from: {} has seed {} of the {} mix, and {} seed {} of the {} mix",
                      files.front(), page.seed, page.mix, file, from.seed, from.mix));
    }
    page.seed = from.seed;
    page.mix = from.mix;
    for (Column& column : from.columns) {
      for (Divergence& d : column.divergences) {
        const fs::path script = fs::path(file).parent_path() / d.script;
        if (d.script.empty() || !fs::exists(script)) d.script.clear();
        if (out.empty() || d.file.empty()) continue;
        write_text(fs::path(out) / d.file, to_json(d.smallest, {{"subject", column.subject}}));
        if (!d.script.empty()) write_text(fs::path(out) / d.script, text_in(script.string()));
      }
      put(page, std::move(column));
    }
  }
  return page;
}

}  // namespace rematch::cli
