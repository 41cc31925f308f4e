"""Processes that run one case together, over gloo on one machine."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch.distributed as dist

from rematch.protocol import ANSWERS, REQUESTS

MOST = 4
"""So many are started; cases may take fewer."""

GRACE = 5.0
"""Seconds that ranks have after one of them failed."""

START = 120.0
"""Seconds that a rank has to start."""

FRAMES = 8
"""So many of each stack are told."""

Work = Callable[[Any, int, dist.ProcessGroup], Any]
"""What a rank answers to a job, given its number and the group of the ranks that have the job. An
answer with a true `failed` is one of a rank that has given up."""


class Lost(Exception):
    """A rank gave no answer; the text says which one, and where each was."""


class Ranks:
    """Started with the first job, and once more after each loss. They are copies of this process,
    so what it has imported, and what tests have patched, they have as well."""

    def __init__(self, work: Work, limit: float) -> None:
        self._work = work
        self._limit = limit
        self._processes: list[Any] = []
        self._connections: list[Connection] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def ask(self, job: Any, ranks: int) -> list[Any]:
        """The answers of the first `ranks`, each of which gets the job. Raises Lost."""
        if not self._processes:
            self._start()
        answers: dict[int, Any] = {}
        waiting = {c: rank for rank, c in enumerate(self._connections[:ranks])}
        deadline = time.monotonic() + self._limit
        for connection in waiting:
            with suppress(OSError):  # Of a rank that died there is no answer.
                connection.send((job, ranks))
        while waiting:
            ready = wait(list(waiting), max(0.0, deadline - time.monotonic()))
            if not ready:
                self._lose("does not answer", set(waiting.values()), answers)
            for connection in ready:
                rank = waiting.pop(connection)
                try:
                    answers[rank] = connection.recv()
                except (EOFError, OSError):
                    self._lose("died", {rank}, answers)
                if answers[rank].failed:
                    deadline = min(deadline, time.monotonic() + GRACE)
        return [answers[rank] for rank in range(ranks)]

    def stop(self) -> None:
        """Ends them; others are started with the next job."""
        for process in self._processes:
            process.kill()
            process.join()
        for connection in self._connections:
            connection.close()
        self._processes, self._connections = [], []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="rematch-ranks-")
        context = get_context("fork")
        for rank in range(MOST):
            ours, theirs = Pipe()
            self._connections.append(ours)
            # Not its own end of the others' either, so that each sees when this process is gone.
            process = context.Process(target=self._live, args=(rank, theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
        for connection in self._connections:
            try:
                if not connection.poll(START):
                    raise TimeoutError
                connection.recv()
            except (EOFError, OSError):
                self.stop()
                raise RuntimeError("a rank did not start; what it printed says why") from None

    def _live(self, rank: int, connection: Connection) -> None:
        """The life of a rank."""
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not to outlive its parent.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for ours in self._connections:
            ours.close()
        for pipe in {REQUESTS, ANSWERS} - {connection.fileno()}:
            with suppress(OSError):
                os.close(pipe)
        # Two ranks in a barrier that a third one does not enter can still say where they are.
        faulthandler.register(signal.SIGUSR1, self._stacks_of(rank).open("w"), all_threads=False)
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        assert self._folder is not None
        store = dist.FileStore(str(Path(self._folder.name) / "store"), MOST)
        # This process ends what hangs, long before.
        patience = timedelta(seconds=10 * self._limit + 300)
        dist.init_process_group("gloo", timeout=patience, world_size=MOST, rank=rank, store=store)
        groups = {2: dist.new_group([0, 1]), MOST: dist.group.WORLD}
        connection.send("ready")
        while True:
            try:
                job, ranks = connection.recv()
            except EOFError:
                os._exit(0)
            connection.send(self._work(job, rank, groups[ranks]))

    def _stacks_of(self, rank: int) -> Path:
        assert self._folder is not None
        return Path(self._folder.name) / f"stacks{rank}"

    def _lose(self, what: str, lost: set[int], answers: dict[int, Any]) -> None:
        stacks = {rank: self._stack(rank) for rank in lost if what != "died"}
        numbers = ", ".join(map(str, sorted(lost)))
        told = [f"of its ranks, {numbers} {what} within {self._limit:g} s"]
        for rank in sorted(stacks.keys() | answers.keys()):
            where = stacks.get(rank) or answers[rank].failed or "has answered"
            told.append(f"rank {rank}: {where}")
        self.stop()
        raise Lost("\n".join(told))

    def _stack(self, rank: int) -> str:
        """Where a rank is, innermost call first."""
        file, text = self._stacks_of(rank), ""
        with suppress(ProcessLookupError):
            os.kill(self._processes[rank].pid, signal.SIGUSR1)
        # It writes while it hangs, and does not say when it is done: its outermost call comes last.
        deadline = time.monotonic() + GRACE
        while "in _live" not in text and time.monotonic() < deadline:
            time.sleep(0.01)
            text = file.read_text() if file.exists() else ""
        calls = re.findall(r'File "(.*)", line (\d+) in (\S+)', text)[:FRAMES]
        return " < ".join(f"{name} ({Path(path).name}:{line})" for path, line, name in calls)
