"""Records in a file what the checkpointed regions of a run compute, and judges such a file anywhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rematch.journal.comparison import Comparison, compare
from rematch.journal.computations import Computation
from rematch.journal.file import NoJournal, Reading, Writer
from rematch.journal.regions import Region
from rematch.safe.causes.journals import cause_of
from rematch.finding import Finding, rank
from rematch.watching import Watch


@dataclass
class Judgement:
    """The findings that `watch` would have made in a run, read from its journal."""

    header: dict[str, Any]
    findings: list[Finding] = field(default_factory=list)
    regions: int = 0
    """The number of forwards of checkpointed regions."""
    compared: int = 0
    """The number of recomputations that were compared."""
    rounded: int = 0
    ended: str | None = None
    """What ended the run; empty if nothing did, None if the process ended before the seal."""
    unseen: list[str] = field(default_factory=list)
    """What the run could not look at."""

    @property
    def not_seen(self) -> list[str]:
        """What the journal cannot tell, in sentences."""
        found = list(self.unseen)
        if self.ended is None:
            found.append("the journal is not sealed: the process ended while it was written")
        elif self.ended:
            found.append(f"the run ended in an error: {self.ended}")
        if not self.regions:
            found.append("no call of checkpoint() ran in a forward of the model, in training mode")
        elif not self.compared:
            found.append("no region was recomputed")
        return found

    def __str__(self) -> str:
        header = self.header
        what = f"{header['model']}, PyTorch {header['torch']}: {self.regions} regions, {self.compared} recomputations"
        lines = [what]
        for finding in self.findings:
            cause = cause_of(finding.comparison)
            lines.append(str(finding))
            if cause is not None:
                lines += [f"  cause: {cause.cause.name}: {cause.says}", f"  what to do: {cause.advice}"]
        if self.compared and not self.findings:
            limit = ", as far as it was seen" if self.not_seen else ""
            lines.append(f"every recomputation computed what its forward did{limit}")
        return "\n".join([*lines, *(f"not seen: {sentence}" for sentence in self.not_seen)])

    def to_json(self) -> dict[str, Any]:
        """Returns the judgement as data for JSON."""
        names = ("step", "rank", "module", "operator", "times")
        findings = []
        for f in self.findings:
            cause = cause_of(f.comparison)
            why = {"cause": cause.cause.name, "advice": cause.advice} if cause else {"cause": None, "advice": None}
            findings.append({**{name: getattr(f, name) for name in names}, "text": str(f), **why})
        counts = {"regions": self.regions, "compared": self.compared, "rounded": self.rounded}
        return {**self.header, **counts, "findings": findings, "not_seen": self.not_seen}


class _Recording(Watch):
    """A watch that writes down what it would compare, and compares nothing."""

    def __init__(self, model: nn.Module, writer: Writer, keep_bytes: int) -> None:
        super().__init__(model, 1, lambda finding: None, keep_bytes, 0)
        self._writer = writer

    def _over(self, region: Region, execution: Computation, step: int, recomputes: bool) -> Comparison | None:
        self._writer.add(execution, step=step, region=region.number, recomputes=recomputes)
        return None

    def _unseen(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self._writer.not_seen(what)


@contextmanager
def record(model: nn.Module, path: str | Path, keep_bytes: int = 1 << 12) -> Iterator[None]:
    """Writes to the file `path` what the checkpointed regions of `model` compute, for `rematch judge FILE`.

        with rematch.record(model, "run.journal"):
            train(model, batch)

    Every training step within is written: a fingerprint of each operator's result, and of each parameter, buffer and
    argument that it reads, with up to `keep_bytes` bytes of its elements. The numbers of the run stay what they are.
    When the block is left, the file is sealed, with the error that ended it, if one did. Raises OSError if the file
    cannot be written, ValueError for fewer than 8 bytes.
    """
    with open(path, "w", encoding="utf-8") as file:
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        where = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
        versions = {"torch": torch.__version__, "device": where, "ATen": torch.backends.cpu.get_cpu_capability()}
        writer = Writer(file, {"model": type(model).__name__, **versions, "rank": rank()})
        error = ""
        try:
            with _Recording(model, writer, keep_bytes):
                yield
        except BaseException as raised:
            error = f"{type(raised).__name__}: {raised}"
            raise
        finally:
            writer.seal(error)


def judge_journal(path: str | Path) -> Judgement:
    """Compares a journal's recomputations with their forwards, and returns the findings. Raises NoJournal, OSError."""
    reading = Reading(path)
    judged = Judgement(reading.header, unseen=reading.unseen)
    forwards: dict[int, Computation] = {}
    for where, execution in reading:
        if not where["recomputes"]:
            judged.regions += 1
            forwards[where["region"]] = execution
            continue
        if where["region"] not in forwards:
            raise NoJournal(f"{path}: the forward of region {where['region']} expected before its recomputation")
        comparison = compare(forwards[where["region"]], execution)
        judged.compared += 1
        judged.rounded += comparison.rounded
        if not comparison.same:
            Finding.of(comparison, where["step"], judged.header["rank"]).added_to(judged.findings)
    judged.ended = reading.ended
    return judged
