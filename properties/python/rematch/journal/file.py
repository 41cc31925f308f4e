"""Writes and reads journals as JSON lines, one for each region that ran, so that another machine can judge a run."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import torch

from rematch.journal.computations import Computation, Entry, Noted

FORMAT = 1


class NoJournal(ValueError):
    """A file is not a journal, or one that this version cannot read."""


class Writer:
    """Writes a journal line by line. The last line seals it; a journal without it ended with its process."""

    def __init__(self, file: TextIO, header: dict[str, Any]) -> None:
        self._file, self._number = file, 0
        self._write({"journal": FORMAT, **header})

    def add(self, execution: Computation, **where: Any) -> None:
        """Adds a region that is over."""
        self._number += 1
        self._write({"number": self._number, **where, **_to_json(execution)})

    def not_seen(self, what: str) -> None:
        """Adds a sentence about what could not be looked at."""
        self._write({"unseen": what})

    def seal(self, error: str) -> None:
        """Adds the last line: the run is over. `error` is what ended it; empty if nothing did."""
        self._write({"sealed": self._number, "error": error})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._file.flush()


class Reading:
    """Reads a journal line by line. Raises NoJournal, OSError."""

    def __init__(self, path: str | Path) -> None:
        self._path, self._lines = path, _lines(Path(path))
        self.header = next(self._lines, {})
        if self.header.get("journal") != FORMAT:
            raise NoJournal(f"{path}: a journal of format {FORMAT} expected")
        self.unseen: list[str] = []
        """What the run could not look at, as far as the lines were read."""
        self.ended: str | None = None
        """What ended the run; empty if nothing did, None until the seal is read."""

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Computation]]:
        """Yields each region that ran, with the line that says where."""
        for line in self._lines:
            try:
                if "sealed" in line:
                    self.ended = line["error"]
                elif "unseen" in line:
                    self.unseen.append(line["unseen"])
                else:
                    yield line, _from_json(line)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise NoJournal(f"{self._path}: a region expected, got {type(error).__name__}: {error}") from error


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, text in enumerate(file, 1):
            if not text.endswith("\n"):
                # The process ended while it wrote this.
                return
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                line = None
            if not isinstance(line, dict):
                raise NoJournal(f"{path}, line {number}: a JSON object expected")
            yield line


def _to_json(execution: Computation) -> dict[str, Any]:
    return {
        "around": execution.around,
        "reentrant": execution.reentrant,
        "results": [_noted(noted) for noted in execution.results],
        "reads": {name: [execution.read_at[name], *_noted(noted)] for name, noted in execution.reads.items()},
        "wrote": list(execution.wrote),
        "prints": [] if execution.prints is None else execution.prints.tolist(),
    }


def _from_json(line: dict[str, Any]) -> Computation:
    execution = Computation(line["around"], line["reentrant"])
    execution.results = [_note(noted) for noted in line["results"]]
    for name, (at, *noted) in line["reads"].items():
        execution.reads[name], execution.read_at[name] = _note(noted), at
    execution.wrote = dict.fromkeys(line["wrote"], torch.tensor(0))
    if line["prints"]:
        execution.prints = torch.tensor(line["prints"], dtype=torch.int64)
    return execution


def _noted(noted: Noted) -> list[Any]:
    e = noted.entry
    kept = noted.kept.detach().cpu().contiguous()
    dtype = str(e.dtype).removeprefix("torch.")
    data = base64.b64encode(kept.view(torch.uint8).numpy().tobytes()).decode("ascii")
    return [e.module, e.operator, e.result, list(e.shape), dtype, e.draws, e.exact, noted.stride, data]


def _note(noted: list[Any]) -> Noted:
    module, operator, result, shape, dtype, draws, exact, stride, data = noted
    kind = getattr(torch, dtype)
    entry = Entry(module, operator, result, torch.Size(shape), kind, draws, exact)
    kept = torch.frombuffer(bytearray(base64.b64decode(data)), dtype=kind) if data else torch.empty(0, dtype=kind)
    return Noted(entry, None, kept, stride)
