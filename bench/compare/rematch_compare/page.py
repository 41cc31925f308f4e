"""The HTML page of a comparison: one file that needs nothing but itself."""

import io
import re
from pathlib import Path
from typing import Any

import jinja2
import matplotlib
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from pydantic import BaseModel, RootModel

from . import words
from .comparison import Benchmark, Comparison, Counter
from .environment import Failure
from .reports import TITLES, cells, in_order
from .results import Whole, read

# Text stays text, and the same data gives the same file.
matplotlib.rcParams |= {"svg.fonttype": "none", "font.size": 9}
# Each colour of a picture becomes a variable of the page: light or dark, as the reader's system is.
INK = {n: f"#00000{i}" for i, n in enumerate(["dim", "line", "bad"], 1)}


def svg(figure: Figure, label: str) -> Markup:
    file = io.StringIO()
    # Names of parts are those of one page, not of one picture.
    matplotlib.rcParams["svg.hashsalt"] = label
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    box = re.search(r'viewBox="[^"]*"', text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<defs>") :], flags=re.S)
    for name, colour in INK.items():
        text = text.replace(colour, f"var(--{name})")
    return Markup(f'<svg {box and box[0]} role="img"><title>{escape(label)}</title>{text}')


class Step(BaseModel):
    """Fields of a point, and the points, as `rematch-bench --timelines` writes them."""

    timeline_fields: list[str]
    timeline: list[list[Whole | str]]


def live_bytes(path: str) -> dict[str, list[Any]]:
    steps = read(RootModel[dict[str, Step]], path).root
    try:
        return {
            n: [p[s.timeline_fields.index("live")] for p in s.timeline] for n, s in steps.items()
        }
    except (ValueError, IndexError):
        raise Failure(f'{path}: timeline_fields: expected a field "live" of each point') from None


def timeline(name: str, sides: dict[str, list[int]]) -> Markup:
    """The bytes over a step; a side without it is named and not drawn."""
    figure = Figure(figsize=(5, 2.6), layout="constrained")
    axes = figure.add_subplot()
    axes.tick_params(colors=INK["dim"])
    axes.spines[:].set_color(INK["line"])
    for (word, live), ink in zip(sides.items(), ("dim", "bad"), strict=True):
        peak = f"{word}: peak {words.amount('peak_bytes', max(live))}" if live else f"{word}: none"
        axes.step(range(len(live)), live, where="post", color=INK[ink], lw=1.2, label=peak)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"{name}: allocation events", color=INK["dim"])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1e6:g} MB"))
    axes.legend(loc="lower center", frameon=False, labelcolor=INK["dim"])
    return svg(figure, f"live bytes of {name}")


def timelines(c: Comparison) -> list[Markup]:
    """Charts of steps whose bytes differ."""
    sides = (c.sides.base, c.sides.new)
    files = [next((f.timelines for f in s.files if f.timelines), "") for s in sides]
    base, new = map(live_bytes, files) if all(files) else ({}, {})
    names = [n for n in base | new if base.get(n) != new.get(n)]
    return [timeline(n, {"base": base.get(n, []), "new": new.get(n, [])}) for n in names]


def counter_row(b: Benchmark, x: Counter) -> list[str]:
    values = ["none" if v is None else words.amount(x.name, v) for v in (x.base, x.new)]
    return [b.name, x.name, *values, "" if None in (x.base, x.new) else words.brief_change(x)]


def html_report(c: Comparison) -> str:
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    # A unit stays with its number.
    environment.filters["prose"] = lambda s: Markup(str(escape(s)).replace(" %", "&#160;%"))
    template = environment.from_string(Path(__file__).with_name("page.html").read_text())
    return template.render(
        c=c,
        words=words,
        style={1: "bad", 3: "open"}.get(c.exit_status, "good"),
        findings=[(t, [f for f in c.findings if f.kind == kind]) for kind, t in TITLES.items()],
        rows=[cells(b) for b in in_order(c) if not b.is_counted_only],
        changed=[counter_row(b, x) for b in c.benchmarks for x in b.changed],
        timelines=timelines(c),
        colours={"SLOWER": "bad", "FASTER": "good", "UNSURE": "open"},
    )
