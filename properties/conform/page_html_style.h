#pragma once

#include <string_view>

namespace rematch::conform {

/// Colours and type as in the reports of ci/compare (bench/compare/rematch_compare/page.html):
/// light and dark as the reader's system is.
inline constexpr std::string_view kPageStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #ffffff; --card: #f5f6f8; --line: #d5d9e0; --text: #1b1f27; --dim: #59616e;
  --bad: #b3261e; --good: #1a7337; --open: #8a5a00; --limit: #2f5fa8;
  --bad-back: #fbe3e1; --open-back: #fbf0d9; --limit-back: #e6eefa;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171c; --card: #1d2128; --line: #363c47; --text: #e7eaf0; --dim: #a1a9b6;
    --bad: #ff8f86; --good: #78d797; --open: #f2c063; --limit: #93b8f5;
    --bad-back: #45211f; --open-back: #3b2f17; --limit-back: #1f2d45;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 110rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}
h1 { font-size: 1.4rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
p { margin: .25rem 0 .75rem; max-width: 60rem; }
ul { margin: .25rem 0 1rem; padding-left: 1.25rem; }
a { color: inherit; }
code, pre { font-family: ui-monospace, monospace; font-size: .85rem; }
pre { margin: .25rem 0 .75rem; padding: .5rem .75rem; background: var(--card); overflow-x: auto;
  overflow-wrap: normal; }
pre.wrapped { white-space: pre-wrap; overflow-wrap: anywhere; }
.dim { color: var(--dim); font-size: .9rem; }
.verdict { border-left: .4rem solid var(--good); padding: .75rem 1rem; margin-bottom: .75rem;
  background: var(--card); }
.verdict p { margin-bottom: 0; }
.verdict.bad { border-color: var(--bad); }
.verdict.unsure { border-color: var(--open); }
.scroll { overflow-x: auto; border: 1px solid var(--line); }
table { border-collapse: separate; border-spacing: 0; font-size: .875rem; }
.laws, .causes { width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; min-width: 6.5rem;
  border-top: 1px solid var(--line); }
thead th { border-top: 0; overflow-wrap: normal; }
tbody th .dim, thead th .dim { font-weight: 400; font-size: .75rem; display: block; line-height: 1.3; }
tbody th { font-weight: 500; white-space: nowrap; }
.laws th:first-child { position: sticky; left: 0; background: var(--page); z-index: 1;
  border-right: 1px solid var(--line); }
td .of { color: var(--dim); font-size: .75rem; display: block; font-variant-numeric: tabular-nums; }
td ul { margin: .25rem 0 0; padding-left: 1rem; font-size: .8rem; }
td summary { list-style: none; } td summary::-webkit-details-marker { display: none; }
.mark { font-weight: 600; white-space: nowrap; }
.kept .mark { color: var(--good); }
.too-few .mark { color: var(--open); font-weight: 400; }
.known { background: var(--open-back); } .known .mark { color: var(--open); }
.not-promised { background: var(--limit-back); } .not-promised .mark { color: var(--limit); }
.new { background: var(--bad-back); } .new .mark { color: var(--bad); }
.not-observed .mark, .not-applicable .mark, .none .mark { color: var(--dim); font-weight: 400; }
summary { cursor: pointer; }
td summary .mark { text-decoration: underline dotted; text-underline-offset: .2em; }
.divergence { border-top: 1px solid var(--line); padding: .35rem 0; }
.divergence .mark, .legend .mark { padding: 0 .4rem; border-radius: .25rem; }
.divergence > div { padding: .25rem 0 .5rem 1rem; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1rem; padding: 0; margin: 0 0 .75rem;
  list-style: none; font-size: .875rem; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .15rem .75rem;
  margin: .25rem 0 .5rem; font-size: .9rem; }
dt { color: var(--dim); } dd { margin: 0; }
@media (max-width: 40rem) {
  body { padding: .75rem; }
  th, td { padding: .3rem .4rem; min-width: 5.5rem; }
  tbody th { white-space: normal; }
  .laws th:first-child { min-width: 7rem; max-width: 8rem; font-size: .8rem; }
  dl { grid-template-columns: minmax(0, 1fr); } dt { margin-top: .25rem; }
}
)css";

}  // namespace rematch::conform
