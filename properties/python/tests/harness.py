"""The harness's side of the protocol, for tests: starts a subject and talks to it over pipes."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cases import run_of
from copies import Copy

HERE = Path(__file__).parent
SOURCES = HERE.parent
FEATURES = ["linear", "dropout", "reentrant", "non_reentrant", "mixed_variants", "named_stream"]
OBSERVABLES = ["outputs", "losses", "draws", "live_bytes"]


class Harness:
    """A running subject. Its messages come back as they are."""

    def __init__(self, *command: str, env: dict[str, str] | None = None) -> None:
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        variables = {**os.environ, "PYTHONPATH": str(SOURCES), **(env or {})}
        self.process = self._start(command or (sys.executable,), requests, answers, variables)
        os.close(requests)
        os.close(answers)
        self._incoming = os.fdopen(self._answers, "rb")
        self._id, self._greeted = 0, False

    def _start(self, command: Sequence[str], requests: int, answers: int, env: dict[str, str]) -> Any:
        # Descriptors 3 and 4 of the child, wherever the pipes happen to lie here.
        fixed = 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"'
        words = ["bash", "-c", fixed, str(requests), str(answers), *command]
        printed = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(words, pass_fds=(requests, answers), cwd=HERE, env=env, **printed)

    def __enter__(self) -> "Harness":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> tuple[int, str, str]:
        """Ends the subject as the harness does. Returns its status, stdout and stderr."""
        if self._requests >= 0:
            os.close(self._requests)
            self._requests = -1
            out, err = self.process.communicate(timeout=60)
            self._incoming.close()
            self.ended = (self.process.returncode, out.decode(), err.decode())
        return self.ended

    def send(self, message: dict[str, Any]) -> None:
        """Says hello first, unless the message or one before it does."""
        if not self._greeted and "hello" not in message:
            self.hello()
        self._greeted = True
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._requests, data) :]

    def receive(self) -> dict[str, Any]:
        """Raises EOFError when the subject is gone."""
        line = self._incoming.readline()
        if not line:
            raise EOFError
        return json.loads(line)

    def hello(self) -> dict[str, Any]:
        self.send({"hello": {"protocol": 1, "features": FEATURES, "observables": OBSERVABLES}})
        return self.receive()["hello"]

    def ask(self, **run: Any) -> dict[str, Any]:
        """The answer to one run, its id taken off."""
        self._id += 1
        self.send({"run": {"id": self._id, **run}})
        answer = self.receive()["answer"]
        assert answer.pop("id") == self._id
        return answer

    def record(self, **run: Any) -> dict[str, Any]:
        answer = self.ask(**run)
        assert "record" in answer, answer
        return answer["record"]

    def both(self, sent: dict[str, Any], **plain: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The records of the plain and the checkpointed run of what run_of() made."""
        return self.record(**sent, checkpointed=False, **plain), self.record(checkpointed=True)

    def agreed(self, case: dict[str, Any], **plain: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The records of the plain and the checkpointed run of a case, which have no error."""
        records = self.both(run_of(case), **plain)
        assert [record["error"] for record in records if "error" in record] == []
        return records

    def export(self, sent: dict[str, Any], finding: str, **rest: Any) -> dict[str, Any]:
        """The answer to an export request."""
        self.send({"export": {"id": 3, **sent, "finding": finding, **rest}})
        return self.receive()["answer"]


def planted(trouble: str, *arguments: str) -> Harness:
    """A subject of PyTorch on ranks that has the trouble from its start: in a copy of a process, the library would be
    there before it."""
    program = SOURCES.parents[1] / "ci" / "maintain" / "mutation" / "planted_parallel.py"
    return Harness(sys.executable, str(program), trouble, "pytorch", "--parallel", *arguments)


class Copied(Harness):
    """A subject that runs in a copy of a process that has imported PyTorch."""

    def _start(self, command: Sequence[str], requests: int, answers: int, env: dict[str, str]) -> Copy:
        assert command[0] == sys.executable
        return Copy(command[1:], (requests, answers), str(HERE), env)


def peak_and_rest(trace: list[dict[str, Any]]) -> tuple[int, dict[int, int]]:
    """The peak of what a trace of PyTorch's memory snapshots allocates, and what it does not free."""
    peak, live = 0, {}
    for entry in trace:
        if entry["action"] == "alloc":
            assert entry["addr"] not in live
            live[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_completed":
            del live[entry["addr"]]
        peak = max(peak, sum(live.values()))
    return peak, live


def run_module(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m` with the package in a folder."""
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    return subprocess.run([sys.executable, "-m", *arguments], cwd=folder, env=env, capture_output=True, text=True)


def run_alone(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script as a reader of an issue does."""
    path = folder / "script.py"
    path.write_text(script)
    return subprocess.run([sys.executable, "-I", str(path)], capture_output=True, text=True)
