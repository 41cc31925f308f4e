"""Judges models, each in a process of its own, so that a crash, a hang or a leak costs one row."""

import json
import os
import resource
import signal
import time
from collections.abc import Generator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from rematch.zoo import NotBuilt, build

SAFE, UNSAFE, NO_SWITCH, NOT_JUDGED, NOT_BUILT = "safe", "not safe", "no switch", "not judged", "not built"
"""The answers. "no switch": the model has no switch, or it checkpoints nothing in this model."""
MOST_BLOCKS = 2
"""How many kinds of blocks are judged, as convolutional models have one for each number of channels."""
_MOST_MEMORY = 8 << 30
_FORK = get_context("fork")
"""A forked process has what all models need: it was imported once."""
Record = dict[str, Any]


def record_of(place: str) -> Record:
    """Judges one model, and returns the answer as data."""
    from rematch.safe import judge_model

    record: Record = {"model": place}
    try:
        made = build(place)
    except NotBuilt as error:
        return record | {"answer": NOT_BUILT, "why": str(error)}
    record["parameters"] = sum(p.numel() for p in made.model.parameters())
    try:
        verdict = judge_model(made.model, *made.args, kwargs=made.kwargs, loss=made.loss, most_blocks=MOST_BLOCKS)
    except RuntimeError as error:
        return record | {"answer": NOT_JUDGED, "why": _line(str(error))}
    record["switch"] = verdict.switch
    if verdict.own is None:
        record |= {"answer": NO_SWITCH, "why": verdict.why_not}
    else:
        record |= {"answer": SAFE if verdict.own.safe else UNSAFE, "findings": _findings(verdict.own)}
        record["tried"] = len({name for names in verdict.own.tried.values() for name in names})
    record["blocks"] = [_of_block(block) for block in verdict.blocks]
    return record


def _of_block(block: Any) -> Record:
    if block.verdict is None:
        return {"class": block.kind, "answer": NOT_JUDGED, "why": _line(block.why_not)}
    answer = SAFE if block.verdict.safe else UNSAFE
    return {"class": block.kind, "answer": answer, "findings": _findings(block.verdict)}


def _findings(verdict: Any) -> list[Record]:
    kept = ("cause", "remark", "differs", "since", "variants", "scenarios")
    return [{key: finding.to_json()[key] for key in kept} for finding in verdict.findings if not finding.only_with]


def _line(text: str) -> str:
    return " ".join(text.split())[:300]


class _Child:
    """A process that judges one model."""

    def __init__(self, place: str, limit: float) -> None:
        self.place, self._limit, self._end = place, limit, time.monotonic() + limit
        self.pipe, answer = _FORK.Pipe(duplex=False)
        self._process = _FORK.Process(target=_judge_in_child, args=(place, answer))
        self._process.start()
        answer.close()

    @property
    def late(self) -> bool:
        return time.monotonic() > self._end

    def kill(self) -> None:
        """Ends the process, and those that it has started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            self._process.kill()

    def end(self) -> Record:
        """Returns the record of the process, or one that says how it ended."""
        late = self.late and not self.pipe.poll()
        if late:
            self.kill()
        try:
            record = json.loads(self.pipe.recv_bytes())
        except EOFError:
            record = None
        self._process.join()
        if record is not None:
            return record
        why = f"its process ended with status {self._process.exitcode}"
        if self._process.exitcode < 0:
            why = f"its process died of signal {-self._process.exitcode}"
        if late:
            why = f"it was not done after {self._limit:.0f} s"
        return {"model": self.place, "answer": NOT_JUDGED, "why": why}


def _judge_in_child(place: str, answer: Connection) -> None:
    """Judges a model, sends the record, and ends the process: it never returns."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        import torch

        torch.set_num_threads(1)
        record = record_of(place)
    except BaseException as error:
        why = _line(f"{type(error).__name__}: {error}")
        record = {"model": place, "answer": NOT_JUDGED, "why": why}
    answer.send_bytes(json.dumps(record).encode())
    os._exit(0)


def judged(places: Sequence[str], limit: float, jobs: int) -> Generator[Record, None, None]:
    """Yields the records of models as they are done, `jobs` models at a time; each may take `limit` seconds. If the
    caller stops early, models that still run are ended."""
    waiting = list(reversed(places))
    running: list[_Child] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_Child(waiting.pop(), limit))
            ready = wait([child.pipe for child in running], 1.0)
            done = [child for child in running if child.pipe in ready or child.late]
            for child in done:
                running.remove(child)
                yield child.end()
    finally:
        for child in running:
            child.kill()
            child.end()
