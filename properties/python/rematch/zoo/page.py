"""The page about all models that were judged, from their records."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from rematch.zoo import LIBRARIES
from rematch.zoo.runner import MOST_BLOCKS, NO_SWITCH, NOT_BUILT, NOT_JUDGED, SAFE, UNSAFE, Record

ANSWERS = (SAFE, UNSAFE, NO_SWITCH, NOT_JUDGED, NOT_BUILT)


def page(records: Sequence[Record], versions: Mapping[str, str]) -> str:
    """Markdown."""
    judged = [r for r in records if r["answer"] not in (NOT_BUILT, NOT_JUDGED)]
    libraries = [name for name in LIBRARIES if any(r["model"].startswith(name + ":") for r in records)]
    parts = [
        f"# Models of {', '.join(libraries)}: {len(judged)} judged",
        "Written by `rematch zoo` with "
        + ", ".join(f"{name} {number}" for name, number in versions.items())
        + ". The command also writes a record for each model. It goes on where it was stopped, so "
        "records may come from several runs, and from several states of the judge; `--again` judges all models again.",
        "Each architecture is built from its configuration, with random weights, a few layers of width 32 and dropout "
        "on. Its own switch (`gradient_checkpointing_enable()`, `set_grad_checkpointing()`, ...) is compared off "
        "against on in training steps, evaluation, accumulation, autocast and other situations: outputs, gradients, "
        f"buffers and random states. Then up to {MOST_BLOCKS} of its blocks are checkpointed from outside.",
        _counts(records),
        _unsafe(judged),
        _blocks(judged),
        _remarks(judged),
        _list("No switch", _of(records, NO_SWITCH), lambda r: r["why"].partition(" refuses")[0] + _refuses(r["why"])),
        _list("Not judged", _of(records, NOT_JUDGED), lambda r: r["why"].replace("\n", " ")),
        _not_built(_of(records, NOT_BUILT)),
        _safe(_of(records, SAFE)),
        "## Not tried\n\nDefault sizes, pretrained weights, a GPU, and what a configuration turns on beside its "
        "defaults. Architectures without a record, with which the same command goes on. Models of several "
        "modalities may have got text alone.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _of(records: Iterable[Record], answer: str) -> list[Record]:
    return [r for r in records if r["answer"] == answer]


def _counts(records: Sequence[Record]) -> str:
    lines = [f"| library | tried | {' | '.join(ANSWERS)} |", "|---|" + "---|" * (1 + len(ANSWERS))]
    for library in LIBRARIES:
        own = [r for r in records if r["model"].startswith(library + ":")]
        if own:
            numbers = " | ".join(str(len(_of(own, answer))) for answer in ANSWERS)
            lines.append(f"| {library} | {len(own)} | {numbers} |")
    return "\n".join(lines)


def _real(findings: Iterable[Record]) -> list[Record]:
    return [f for f in findings if not f["remark"]]


def _unsafe(records: Sequence[Record]) -> str:
    rows: dict[str, list[Record]] = defaultdict(list)
    for record in _of(records, UNSAFE):
        causes = dict.fromkeys(f["cause"] for f in _real(record["findings"]))
        rows[", ".join(causes)].append(record)
    lines = ["## Not safe", "", "| cause | models | what differs in the first |", "|---|---|---|"]
    for cause, own in sorted(rows.items(), key=lambda row: -len(row[1])):
        lines.append(f"| {cause} | {_names(own)} | {_cell(_real(own[0]['findings'])[0]['differs'])} |")
    return "\n".join(lines) if rows else "## Not safe\n\nNone."


def _blocks(records: Sequence[Record]) -> str:
    """Blocks that are not safe when they are checkpointed from outside, of models that are not told of above."""
    rows: dict[str, dict[str, Record]] = defaultdict(dict)
    for record in records:
        for block in record["blocks"] if record["answer"] != UNSAFE else ():
            if block["answer"] == UNSAFE:
                causes = dict.fromkeys(f["cause"] for f in _real(block["findings"]))
                rows[", ".join(causes)][record["model"]] = record
    if not rows:
        return ""
    lines = ["## Blocks that are not safe to checkpoint from outside", "", "| cause | models |", "|---|---|"]
    ordered = sorted(rows.items(), key=lambda row: -len(row[1]))
    return "\n".join([*lines, *(f"| {cause} | {_names(own.values())} |" for cause, own in ordered)])


def _remarks(records: Sequence[Record]) -> str:
    rows: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        # Nearly all checkpoint in training mode only, which is no news.
        told = [f for f in record.get("findings", ()) if f["remark"] and f["scenarios"] != ["evaluation mode"]]
        for cause in dict.fromkeys(f["cause"] for f in told):
            rows[cause].append(record)
    lines = ["## Remarks", "", "Nothing is wrong, but less is saved, or returned, than one would think.", ""]
    lines += ["| remark | models |", "|---|---|"]
    lines += [f"| {cause} | {_names(own)} |" for cause, own in sorted(rows.items())]
    return "\n".join(lines) if rows else ""


def _list(title: str, records: Sequence[Record], says: Callable[[Record], str]) -> str:
    rows: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        rows[says(record)].append(record)
    lines = [f"## {title}", "", "| why | models |", "|---|---|"]
    ordered = sorted(rows.items(), key=lambda row: -len(row[1]))
    return "\n".join([*lines, *(f"| {_cell(why)} | {_names(own)} |" for why, own in ordered)]) if rows else ""


def _not_built(records: Sequence[Record]) -> str:
    """By the part of the sentence before its colon, without numbers; the records have the rest."""
    return _list("Not built", records, lambda r: re.sub(r"[\d,]+ parameters", "too many", r["why"].partition(":")[0]))


def _refuses(why: str) -> str:
    return " refuses" if " refuses" in why else ""


def _safe(records: Sequence[Record]) -> str:
    lines = ["## Safe as far as tried", ""]
    for library in LIBRARIES:
        own = [r for r in records if r["model"].startswith(library + ":")]
        if own:
            names = sorted((_bare(r) for r in own), key=str.lower)
            lines.append(f"**{library}** ({len(own)}): {', '.join(names)}\n")
    return "\n".join(lines).rstrip()


def _bare(record: Record) -> str:
    return str(record["model"].partition(":")[2])


def _names(records: Iterable[Record]) -> str:
    return ", ".join(sorted((f"`{_bare(r)}`" for r in records), key=str.lower))


def _cell(text: str) -> str:
    short = text if len(text) <= 160 else text[:157] + "..."
    return short.replace("|", "\\|").replace("_", "\\_").replace("*", "\\*").replace("<", "\\<")
