#!/usr/bin/env python3
"""Writes README.md beside conform.json, from its records alone.

  golden/conformance/make_readme.py [--check]

--check writes nothing; exit status 1 where the page is not what the records say.
"""

import json
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
GRADIENTS = ("absent-gradients", "input-gradients", "parameter-gradients")
NEW, KNOWN, NOT_PROMISED = MARKS = ("new", "known", "not promised")
MARKUP = str.maketrans({c: f"\\{c}" for c in "\\`*_[]|<>&#"} | {"\n": " ", "\r": " "})

# Versions that every subject in Python has.
COMMON = ("python", "numpy")

HEAD = """# Who keeps which law

A program wrote this page from `conform.json`; `ci/maintain/conform` writes both. {cases} random cases of the
{mix} mix were judged, seed {seed}, in {implementations} implementations.

## Silently wrong gradients

No error and no warning, and yet a gradient differs from the one without a checkpoint, or is missing. A row is one
cause in one framework. The last column counts the cases in which a gradient is known to be wrong, by implementation,
of all that were tried.

"""
LIMITS = """
## Within stated limits

Gradients differ here as well, but the implementation says so, or it follows from what it says. Sums in another order
and other signs of zero are here, too.

"""
QUIET = """
## No silently wrong gradient seen

{}

## All frameworks

The last columns count causes: those that no profile explains (new), that a profile lists (known), and stated limits
(not promised). They concern all laws, not gradients alone; `conform.json` has the marks of each law.

"""
TAIL = """
## One record

`conform.json` has one divergence a line: its `id`, `why`, the cases of each law, and the smallest case. With `jq`,
a case and its script in the bare framework are

    $ jq '.subjects[] | select(.name == "mlx").divergences[0].smallest.case' golden/conformance/conform.json > case.json
    $ build/release/bin/rematch replay --subject mlx case.json --export case.py

The paths in `file`, `script` and `replay` are below the folder where `ci/maintain/conform` leaves the whole page.
"""


def escaped(text):
    return text.translate(MARKUP)


def framework(subject):
    return subject["name"].split(":")[0]


def why(divergence):
    """The reason that the profile gives; a new divergence has its first symptom instead."""
    smallest = divergence["smallest"]
    return divergence.get("why") or f"{smallest['law']}: {smallest['place']}"


def causes(subjects, marks):
    """Divergences that reach a gradient, and where each was seen, by framework and id."""
    rows = {}
    for subject in subjects:
        for divergence in subject["divergences"]:
            wrong = max(divergence["laws"].get(law, 0) for law in GRADIENTS)
            if wrong and divergence["mark"] in marks:
                # A new one has a name of this hunt only: it is no cause that two subjects share.
                own = subject["name"] if divergence["mark"] == NEW else ""
                key = framework(subject), divergence["id"], own
                seen = rows.setdefault(key, (divergence, []))[1]
                seen.append(f"`{subject['name']}` {wrong:,} of {subject['cases']:,}")
    return rows


def cause_table(rows):
    text = "| framework | when | cases |\n|---|---|---|\n"
    for (name, identifier, _), (divergence, seen) in rows.items():
        reason = escaped(why(divergence))
        link = divergence.get("link", "")
        if link.startswith("https://"):
            reason += f" ([report]({link}))"
        text += f"| {name} | **{escaped(identifier)}**: {reason} | {', '.join(seen)} |\n"
    return text


def judged_gradients(subject):
    cells = (subject["laws"].get(law, {}) for law in GRADIENTS)
    return sum(cell.get(mark, 0) for cell in cells for mark in ("kept", *MARKS))


def without(subjects, rows):
    """Frameworks in no row, and where their gradients were compared at all."""
    lines = []
    for name in dict.fromkeys(map(framework, subjects)):
        if any(key[0] == name for key in rows):
            continue
        own = [s for s in subjects if framework(s) == name]
        compared = [f"`{s['name']}`" for s in own if judged_gradients(s)]
        rest = [f"`{s['name']}`" for s in own if not judged_gradients(s)]
        said = []
        if compared:
            said.append("gradients were compared in " + ", ".join(compared))
        if rest:
            said.append("none was compared in " + ", ".join(rest))
        lines.append(f"- {name}: {'; '.join(said)}")
    return "\n".join(lines)


def all_table(subjects):
    text = "| framework | versions | implementations | cases | new | known | not promised |\n"
    text += "|---|---|---|---|---|---|---|\n"
    for name in dict.fromkeys(map(framework, subjects)):
        own = [s for s in subjects if framework(s) == name]
        versions = {f"{n} {v}" for s in own for n, v in s["versions"].items() if n not in COMMON}
        found = {(d["id"], d["mark"]) for s in own for d in s["divergences"]}
        count = Counter(mark for _, mark in found)
        judged = sum(s["cases"] for s in own)
        cases = f"{judged:,}" if judged else "not judged"
        numbers = " | ".join(str(count[mark]) for mark in MARKS)
        names = escaped(", ".join(sorted(versions)))
        text += f"| {name} | {names} | {len(own)} | {cases} | {numbers} |\n"
    return text


def page(records):
    subjects = records["subjects"]
    silent = causes(subjects, (NEW, KNOWN))
    limits = causes(subjects, (NOT_PROMISED,))
    cases = sum(s["cases"] for s in subjects)
    return "".join((
        HEAD.format(cases=f"{cases:,}", implementations=len(subjects), **records),
        cause_table(silent), LIMITS, cause_table(limits),
        QUIET.format(without(subjects, silent)), all_table(subjects), TAIL))


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    text = page(json.loads((HERE / "conform.json").read_text(encoding="utf-8")))
    readme = HERE / "README.md"
    if not arguments:
        readme.write_text(text, encoding="utf-8")
    elif not readme.exists() or readme.read_text(encoding="utf-8") != text:
        print("golden/conformance/README.md is not what conform.json says: make_readme.py beside it "
              "writes it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
