"""`rematch zoo`: judges the models of libraries, and writes a page and the records behind it."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from rematch.cli import parser_of, refuse
from rematch.zoo import LIBRARIES, knows, missing, names
from rematch.zoo.page import page
from rematch.zoo.runner import NOT_BUILT, NOT_JUDGED, UNSAFE, Record, judged

EXAMPLE = """\
examples:
  rematch zoo transformers:LlamaForCausalLM
  rematch zoo --library timm --jobs 2
  rematch zoo 'transformers:*ForCausalLM' --out golden/conformance

Models that the records hold already are not judged again: a run continues where the one before was stopped.
"""
FORMAT = 1


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(
        "zoo",
        "Builds small random models of the architectures of libraries, and says whether their own "
        "checkpointing changes what they compute.",
        EXAMPLE,
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="library:name, or a pattern of such names (all)")
    parser.add_argument("--library", choices=LIBRARIES, action="append", help="judges all models of a library")
    parser.add_argument("--list", action="store_true", help="prints the names, and judges nothing")
    parser.add_argument("--out", type=Path, default=Path("rematch-zoo"), help="folder of ZOO.md (rematch-zoo)")
    parser.add_argument("--json", type=Path, help="the records, one line a model (zoo.jsonl beside the page)")
    parser.add_argument("--for", dest="limit", type=float, default=120.0, metavar="S", help="seconds a model may take")
    parser.add_argument("--jobs", type=int, default=1, help="how many models to judge at a time")
    parser.add_argument("--again", action="store_true", help="also judges models that the records hold already")
    return parser


def main(arguments: list[str]) -> None:
    """Raises SystemExit: 1 if a model is not safe, 2 for a wrong argument or no judged model, 130 if it was stopped."""
    given = _parser().parse_args(arguments)
    if given.limit <= 0 or given.jobs < 1:
        refuse("rematch zoo", "--for and --jobs: more than 0 expected")
    places = _places(given.names, given.library)
    if given.list:
        return print("\n".join(places))
    file = given.json or given.out / "zoo.jsonl"
    records = {} if not file.exists() else _read(file)
    # Models that could not be built cost little, and may be built by now.
    known = {place for place, record in records.items() if record["answer"] != NOT_BUILT}
    open_ = [place for place in places if given.again or place not in known]
    begin, stopped = time.monotonic(), False
    # Whatever ends it, the models that run are ended with it, and the page is written.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    given.out.mkdir(parents=True, exist_ok=True)
    _prepare(open_)
    done = judged(open_, given.limit, given.jobs)
    try:
        for count, record in enumerate(done, 1):
            records[record["model"]] = record
            _tell(record, count, len(open_), time.monotonic() - begin)
            # No record is lost, whatever stops the run.
            _write(file, records)
    except KeyboardInterrupt:
        done.close()
        stopped = True
    (given.out / "ZOO.md").write_text(page(list(records.values()), _header(records)["versions"]), encoding="utf-8")
    print(f"{given.out / 'ZOO.md'}, {file}: {len(records)} models" + (", stopped" if stopped else ""))
    if stopped:
        print("the same command goes on")
        raise SystemExit(130)
    answers = {records[place]["answer"] for place in places}
    if UNSAFE in answers or answers <= {NOT_BUILT, NOT_JUDGED}:
        raise SystemExit(1 if UNSAFE in answers else 2)


def _places(asked: Sequence[str], libraries: Sequence[str] | None) -> list[str]:
    for name in asked:
        if not knows(name):
            refuse("rematch zoo", f"{name}: library:name expected, with one of {', '.join(LIBRARIES)}")
    found: list[str] = []
    for library in LIBRARIES:
        patterns = [name for name in asked if name.startswith(library + ":")]
        whole = library in (libraries or ()) or not (asked or libraries)
        if not patterns and not whole:
            continue
        try:
            known = [f"{library}:{name}" for name in names(library)]
        except ImportError as error:
            if asked or libraries:
                refuse("rematch zoo", f"{library}: {error}")
            print(f"{library} is left out: {error}", file=sys.stderr)
            continue
        if whole:
            found += known
        for pattern in patterns:
            matching = [place for place in known if fnmatchcase(place, pattern)]
            # A name that is not listed may be a further class of a kind that is.
            if not matching and (lacks := missing(pattern)):
                refuse("rematch zoo", lacks)
            found += matching or [pattern]
    return list(dict.fromkeys(found))


def _prepare(places: Sequence[str]) -> None:
    """Imports once what all processes need."""
    import_module("rematch.safe")
    for library in {place.partition(":")[0] for place in places}:
        prepare = getattr(import_module(f"rematch.zoo.{library}_models"), "prepare", None)
        if prepare is not None:
            prepare()


def _read(file: Path) -> dict[str, Record]:
    lines = file.read_text(encoding="utf-8").splitlines()
    if not lines or json.loads(lines[0]).get("format") != FORMAT:
        refuse("rematch zoo", f"{file}: records of format {FORMAT} expected; another --json writes new ones")
    return {record["model"]: record for record in map(json.loads, lines[1:])}


def _write(file: Path, records: dict[str, Record]) -> None:
    ordered = sorted(records.values(), key=lambda r: str(r["model"]).lower())
    text = "\n".join(json.dumps(record) for record in [_header(records), *ordered]) + "\n"
    new = file.with_name(file.name + ".part")
    file.parent.mkdir(parents=True, exist_ok=True)
    new.write_text(text, encoding="utf-8")
    new.replace(file)


def _header(records: dict[str, Record]) -> Record:
    libraries = {place.partition(":")[0] for place in records}
    versions = {name: version(name) for name in ("torch", *LIBRARIES) if name in libraries or name == "torch"}
    return {"format": FORMAT, "command": "python -m rematch zoo", "versions": versions}


def _tell(record: Record, count: int, total: int, passed: float) -> None:
    rest = passed / count * (total - count)
    causes = ", ".join(dict.fromkeys(f["cause"] for f in record.get("findings", ()) if not f["remark"]))
    why = f": {record['why']}" if record.get("why") else ""
    says = record["answer"] + (f" ({causes})" if causes else why)
    print(f"{count} of {total}, about {rest / 60:.0f} min left: {record['model']}: {says}", file=sys.stderr, flush=True)
