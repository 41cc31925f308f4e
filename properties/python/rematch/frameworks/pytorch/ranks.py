"""Processes that run one case together, over gloo on one machine."""

import ctypes
import faulthandler
import gc
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import zip_longest
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rematch.subjects.protocol import ANSWERS, REQUESTS, Unsupported

MOST = 4
"""How many ranks are started; cases may take fewer."""

GRACE = 5.0
"""Seconds that ranks have after one of them failed."""

START = 20.0
"""Seconds that they have to find each other."""

FRAMES = 8
"""How many frames of each stack are told."""

SAMPLE = 0.5
"""Seconds for which silent ranks are looked at: whether they compute, or wait for one another."""

MOST_TIMES = 1.5
"""How many times its limit a run may take on a busy machine."""

Work = Callable[[Any, int, dist.ProcessGroup], Any]
"""A function that answers a job in a rank, given its number and the group of the ranks that have the job. An
answer with a true `failed` is one of a rank that has given up."""


class Lost(Exception):
    """A rank gave no answer; the text says which one, and where each was."""


_kept: list[dist.ProcessGroup] = []


def keep_groups() -> None:
    """The groups that there are now outlive the run that made them."""
    _kept.extend(dist.distributed_c10d._world.pg_map)


def _let_go_of_groups(kept: Collection[dist.ProcessGroup]) -> None:
    """Ends groups that a run made, such as those of a mesh: each has a thread that looks for messages 100 times a
    second, for as long as there is anything of it."""
    made = [group for group in dist.distributed_c10d._world.pg_map if group not in (*kept, *_kept)]
    for group in made:
        dist.destroy_process_group(group)
    if made:
        del made, group
        gc.collect()


def _written(file: int) -> str:
    return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")


class Ranks:
    """Started with the first job, and once more after each loss. They are copies of this process,
    so what it has imported, and what tests have patched, they have as well."""

    def __init__(self, work: Work, limit: float) -> None:
        self._work = work
        self._limit = limit
        self._processes: list[Any] = []
        self._connections: list[Connection] = []
        # In memory: no folder is left behind where this process is killed.
        self._store = -1
        self._stacks: list[int] = []
        self._said: list[int] = []

    def ask(self, job: Any, ranks: int, seconds: float) -> list[Any]:
        """The answers of the first `ranks`, each of which gets the job, and has so many of the limit's `seconds` left; on
        a busy machine, of the CPU. Raises Lost, or Unsupported if it is too busy."""
        if not self._processes:
            self._start()
        answers: dict[int, Any] = {}
        waiting = {c: rank for rank, c in enumerate(self._connections[:ranks])}
        began = time.monotonic(), [self._times(rank)[0] for rank in range(ranks)]
        deadline = began[0] + seconds
        for connection, rank in waiting.items():
            try:
                connection.send((job, ranks))
            except OSError:
                self._lose({rank}, set(waiting.values()), answers)
        while waiting:
            ready = wait(list(waiting), max(0.0, deadline - time.monotonic()))
            if not ready:
                silent = set(waiting.values())
                had = max(self._times(rank)[0] - began[1][rank] for rank in silent)
                if had >= seconds or not self._moves(silent):
                    self._lose(set(), silent, answers)
                passed = time.monotonic() - began[0]
                if passed > MOST_TIMES * self._limit:
                    self.stop()
                    raise Unsupported(f"the machine was busy: in {passed:.0f} s a rank computed for {had:.0f} s")
                deadline = time.monotonic() + seconds / 10
            for connection in ready:
                rank = waiting.pop(connection)
                try:
                    answers[rank] = connection.recv()
                except (EOFError, OSError):
                    self._lose({rank}, set(waiting.values()), answers)
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
        for file in self._files():
            os.close(file)
        self._processes, self._connections = [], []
        self._store, self._stacks, self._said = -1, [], []

    def _times(self, rank: int) -> tuple[float, float]:
        """The seconds for which its threads ran, and for which they were ready to run and did not."""
        ran = waited = 0
        for file in Path(f"/proc/{self._processes[rank].pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                numbers = file.read_text().split()
                ran, waited = ran + int(numbers[0]), waited + int(numbers[1])
        return ran / 1e9, waited / 1e9

    def _moves(self, ranks: set[int]) -> bool:
        """Whether one of them computes, or would if the machine let it. Those that wait for one another do not."""
        before = {rank: sum(self._times(rank)) for rank in ranks}
        time.sleep(SAMPLE)
        return any(sum(self._times(rank)) - before[rank] > SAMPLE / 10 for rank in ranks)

    def _files(self) -> list[int]:
        return [file for file in (self._store, *self._stacks, *self._said) if file >= 0]

    def _start(self) -> None:
        self._store = os.memfd_create("store")
        self._stacks = [os.memfd_create(f"stacks{rank}") for rank in range(MOST)]
        self._said = [os.memfd_create(f"said{rank}") for rank in range(MOST)]
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
                    raise EOFError
                connection.recv()
            except (EOFError, OSError):
                self.stop()
                raise RuntimeError("a rank did not start; what it printed says why") from None

    def _live(self, rank: int, connection: Connection) -> None:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not to outlive its parent.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for ours in self._connections:
            ours.close()
        for pipe in {REQUESTS, ANSWERS} - {connection.fileno(), *self._files()}:
            with suppress(OSError):
                os.close(pipe)
        # Two ranks in a barrier that a third one does not enter can still say where they are.
        faulthandler.register(signal.SIGUSR1, self._stacks[rank], all_threads=False)
        faulthandler.enable(self._stacks[rank], all_threads=False)
        # The first call after a fork makes PyTorch's pool of threads anew. Where autograd's threads call first, two at
        # a time, one of them may find no pool ("Invalid thread pool!") and ends the process.
        torch.set_num_threads(torch.get_num_threads())
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        store = dist.FileStore(f"/proc/self/fd/{self._store}", MOST)
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
            os.ftruncate(self._said[rank], 0)
            os.lseek(self._said[rank], 0, os.SEEK_SET)
            # All ranks have answered the last job. Before that, one may still be connecting to its groups.
            _let_go_of_groups(groups.values())
            connection.send(self._work(job, rank, groups[ranks]))

    def _lose(self, dead: set[int], silent: set[int], answers: dict[int, Any]) -> None:
        silent = silent - dead
        numbers = ", ".join(map(str, sorted(dead or silent)))
        verb = "do" if len(silent) > 1 else "does"
        what = "died" if dead else f"{verb} not answer within {self._limit:g} s"
        places = {rank: self._death(rank) for rank in dead}
        places |= {rank: answer.failed or "has answered" for rank, answer in answers.items()}
        told_by = time.monotonic() + GRACE
        for rank in silent:
            places[rank] = self._stack(rank, told_by) or "does not say where it is"
        parting = self._parting(sorted(places))
        self.stop()
        told = [f"rank {rank}: {places[rank]}" for rank in sorted(places)]
        raise Lost("\n".join([f"of its ranks, {numbers} {what}", *told, *parting]))

    def says(self, rank: int, what: str) -> None:
        """Is called in a rank ahead of each call for which it may have to wait for others."""
        os.write(self._said[rank], f"{what}\n".encode())

    def _parting(self, ranks: Sequence[int]) -> list[str]:
        """A line that tells the first of those calls that not all ranks make alike."""
        said = {rank: _written(self._said[rank]).splitlines() for rank in ranks}
        for number, calls in enumerate(zip_longest(*said.values(), fillvalue="none")):
            if len(set(calls)) > 1:
                told = (f"rank {rank} calls {call}" for rank, call in zip(said, calls, strict=True))
                return [f"they part at collective {number + 1}: {'; '.join(told)}"]
        return []

    def _death(self, rank: int) -> str:
        process = self._processes[rank]
        process.join(GRACE)
        code = process.exitcode
        ended = f"killed by signal {-code}" if code and code < 0 else f"exit status {code}"
        return " in ".join(filter(None, [ended, self._frames(rank)]))

    def _stack(self, rank: int, deadline: float) -> str:
        """Where a rank is, innermost call first."""
        with suppress(ProcessLookupError):
            os.kill(self._processes[rank].pid, signal.SIGUSR1)
        # It writes while it hangs, and does not say when it is done: its outermost call comes last.
        while "in _live" not in _written(self._stacks[rank]) and time.monotonic() < deadline:
            time.sleep(0.01)
        return self._frames(rank)

    def _frames(self, rank: int) -> str:
        calls = re.findall(r'File "(.*)", line (\d+) in (\S+)', _written(self._stacks[rank]))[:FRAMES]
        return " < ".join(f"{name} ({Path(path).name}:{line})" for path, line, name in calls)
