"""Writes the page about all judged models, from their records."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from rematch.zoo import LIBRARIES
from rematch.zoo.runner import MOST_BLOCKS, NO_SWITCH, NOT_BUILT, NOT_JUDGED, SAFE, UNSAFE, Record

ANSWERS = (SAFE, UNSAFE, NO_SWITCH, NOT_JUDGED, NOT_BUILT)


def page(records: Sequence[Record], versions: Mapping[str, str]) -> str:
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
        _table("Blocks that are not safe to checkpoint from outside", "cause", _grouped(judged, _block_causes)),
        _table("Remarks", "remark", dict(sorted(_grouped(judged, _remarks).items())), _REMARKS),
        _table("No switch", "why", _grouped(_of(records, NO_SWITCH), _why_no_switch)),
        _table("Not judged", "why", _grouped(_of(records, NOT_JUDGED), lambda r: [r["why"].replace("\n", " ")])),
        _table("Not built", "why", _grouped(_of(records, NOT_BUILT), _why_not_built)),
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


def _causes(findings: Iterable[Record]) -> str:
    """Returns the causes of findings, without remarks."""
    return ", ".join(dict.fromkeys(f["cause"] for f in findings if not f["remark"]))


def _grouped(records: Iterable[Record], says: Callable[[Record], Iterable[str]]) -> dict[str, list[Record]]:
    """Returns records grouped by every text that `says` returns for them, the most frequent text first."""
    rows: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        for text in dict.fromkeys(says(record)):
            rows[text].append(record)
    return dict(sorted(rows.items(), key=lambda row: -len(row[1])))


def _table(title: str, says: str, rows: Mapping[str, Iterable[Record]], intro: str = "") -> str:
    lines = [f"## {title}", "", *([intro, ""] if intro else []), f"| {says} | models |", "|---|---|"]
    return "\n".join([*lines, *(f"| {_cell(text)} | {_names(own)} |" for text, own in rows.items())]) if rows else ""


def _unsafe(records: Sequence[Record]) -> str:
    rows = _grouped(_of(records, UNSAFE), lambda record: [_causes(record["findings"])])
    lines = ["## Not safe", "", "| cause | models | what differs in the first |", "|---|---|---|"]
    for cause, own in rows.items():
        differs = next(f["differs"] for f in own[0]["findings"] if not f["remark"])
        lines.append(f"| {cause} | {_names(own)} | {_cell(differs)} |")
    return "\n".join(lines) if rows else "## Not safe\n\nNone."


def _block_causes(record: Record) -> list[str]:
    """Returns the causes of unsafe blocks, in models that the table above does not list."""
    blocks = record["blocks"] if record["answer"] != UNSAFE else ()
    return [_causes(block["findings"]) for block in blocks if block["answer"] == UNSAFE]


_REMARKS = "Nothing is wrong, but less is saved, or returned, than one would think."


def _remarks(record: Record) -> list[str]:
    # Nearly all checkpoint in training mode only, which is no news.
    found = record.get("findings", ())
    return [f["cause"] for f in found if f["remark"] and f["scenarios"] != ["evaluation mode"]]


def _why_no_switch(record: Record) -> list[str]:
    before, refuses, _ = record["why"].partition(" refuses")
    return [before + refuses]


def _why_not_built(record: Record) -> list[str]:
    """Returns the reason up to its colon, without numbers; the record has the rest."""
    return [re.sub(r"[\d,]+ parameters", "too many", record["why"].partition(":")[0])]


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
