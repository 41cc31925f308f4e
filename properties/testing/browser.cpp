#include "properties/testing/browser.h"

#include <stdexcept>

#include "properties/testing/shell.h"

namespace rematch::testing {
namespace {

/// As an attribute in double quotes.
std::string quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (run_line(std::string("command -v ") + name).status == 0) return name;
  }
  return "";
}

std::string looked_at(std::string_view page, std::string_view script,
                      const std::vector<int>& widths, const std::string& options) {
  const ScratchFolder folder;
  std::string text = "<!DOCTYPE html><meta charset=\"utf-8\"><body>";
  for (const int width : widths) {
    text += "<iframe style=\"border:0;height:900px;width:" + std::to_string(width) +
            "px\" srcdoc=\"" + quoted(page) + "\"></iframe>\n";
  }
  text += "<script>const look = " + std::string(script) + R"js(;
addEventListener('load', () => {
  const found = [...document.querySelectorAll('iframe')].map(frame => look(frame.contentWindow));
  document.body.textContent = 'FOUND' + JSON.stringify(found) + 'END';
});</script>)js";
  folder.write("frames.html", text);
  const Outcome o =
      run_line(browser() + " --headless --no-sandbox --disable-gpu --hide-scrollbars --dump-dom " +
                   options + " --user-data-dir=profile frames.html 2>browser.log",
               folder.path());
  const std::size_t from = o.out.find("FOUND");
  const std::size_t to = o.out.rfind("END");
  if (from == std::string::npos || to == std::string::npos) {
    throw std::runtime_error(o.out.substr(0, 2000) + text_of(folder.path() / "browser.log"));
  }
  return o.out.substr(from + 5, to - from - 5);
}

}  // namespace rematch::testing
