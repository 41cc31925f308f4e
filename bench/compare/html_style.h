#pragma once

#include <string_view>

namespace rematch::compare {

/// The style of the HTML page: one column on a phone, light and dark as the reader's system is.
inline constexpr std::string_view kHtmlStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #ffffff; --card: #f5f6f8; --line: #d5d9e0; --text: #1b1f27; --dim: #59616e;
  --bad: #b3261e; --good: #1a7337; --open: #8a5a00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171c; --card: #1d2128; --line: #363c47; --text: #e7eaf0; --dim: #a1a9b6;
    --bad: #ff8f86; --good: #78d797; --open: #f2c063;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}
h1 { font-size: 1.4rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0 .75rem; }
ul { margin: .25rem 0 1rem; padding-left: 1.25rem; }
li { margin: .25rem 0; }
code, .number { font-variant-numeric: tabular-nums; }
code { font-family: ui-monospace, monospace; font-size: .9em; }
.dim { color: var(--dim); font-size: .9rem; }
.verdict { border-left: .4rem solid var(--good); padding: .75rem 1rem; background: var(--card); }
.verdict.regression { border-color: var(--bad); }
.verdict.unsure { border-color: var(--open); }
summary { cursor: pointer; padding: .5rem 0; }
.row {
  display: grid; grid-template-columns: 1fr auto; gap: .1rem .75rem; align-items: center;
  padding: .5rem 0; border-top: 1px solid var(--line);
}
.row .forest { grid-column: 1 / -1; }
.row .number { color: var(--dim); font-size: .85rem; grid-column: 1 / -1; }
.word { font-size: .8rem; font-weight: 700; letter-spacing: .03em; }
.SLOWER { color: var(--bad); } .FASTER { color: var(--good); } .UNSURE { color: var(--open); }
.SAME, .none { color: var(--dim); }
.forest { position: relative; height: 1.1rem; background: var(--card); }
.forest i { position: absolute; display: block; }
.forest .band { top: 0; bottom: 0; background: var(--line); opacity: .6; }
.forest .one { top: 0; bottom: 0; width: 1px; background: var(--dim); }
.forest .bar { top: calc(50% - 2px); height: 4px; background: currentColor; opacity: .65; }
.forest .dot {
  top: calc(50% - 5px); width: 10px; height: 10px; margin-left: -5px; border-radius: 50%;
  background: currentColor;
}
.axis { position: relative; height: 1.3rem; font-size: .75rem; color: var(--dim); }
.axis span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.axis span:first-child { transform: none; } .axis span:last-child { transform: translateX(-100%); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-top: 1px solid var(--line);
  vertical-align: top; }
th { color: var(--dim); font-weight: 500; border-top: 0; }
td code { white-space: nowrap; }
td.amount, th.amount { text-align: right; font-variant-numeric: tabular-nums; }
.rose { color: var(--bad); } .fell { color: var(--good); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 33rem), 1fr));
  gap: 1rem; }
figure { margin: 0; }
svg { display: block; width: 100%; max-width: 40rem; background: var(--card); }
svg text { fill: var(--dim); }
@media (min-width: 48rem) {
  .row { grid-template-columns: 20rem 1fr 14rem 4.5rem; }
  .row .forest { grid-column: 2; grid-row: 1; }
  .row .number { grid-column: 3; grid-row: 1; }
  .row .word { grid-column: 4; grid-row: 1; }
  .axis { margin: 0 calc(18.5rem + 1.5rem) 0 calc(20rem + .75rem); }
  table.phone { font-size: .95rem; }
}
@media (max-width: 47.99rem) {
  table.phone, table.phone tbody, table.phone tr, table.phone td { display: block; }
  table.phone thead { display: none; }
  table.phone tr { border-top: 1px solid var(--line); padding: .4rem 0; }
  table.phone td { border: 0; padding: 0; text-align: left; }
  table.phone td[data-title]::before { content: attr(data-title) " "; color: var(--dim); }
}
)css";

}  // namespace rematch::compare
