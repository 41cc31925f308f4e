"""Runs scripts as `python script.py` would, in a process of its own each."""

import atexit
import json
import subprocess
import sys
import tempfile
from pathlib import Path

# Importing PyTorch, and what a first checkpoint imports further, takes seconds: it is done once,
# and every script runs in a copy of the process that did. The copy ends without Python's
# finalization, which would take as long.
_SERVER = """\
import json, os, runpy, signal, sys, traceback
import torch, torch._dynamo

def run(folder, seconds):
    signal.setitimer(signal.ITIMER_REAL, seconds)
    os.chdir(folder)
    for descriptor, name in enumerate((os.devnull, "out", "err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), descriptor)
    try:
        runpy.run_path("script.py", run_name="__main__")
        return 0
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1

for line in sys.stdin:
    if not (child := os.fork()):
        status = run(*json.loads(line))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""


class Interpreter:
    """Python with PyTorch and nothing else imported, until this process ends. `options`: those of
    the interpreter."""

    def __init__(self, *options: str) -> None:
        self._server = subprocess.Popen(
            [sys.executable, *options, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        atexit.register(self._server.communicate)

    def run(self, script: str, seconds: float) -> tuple[int, str, str]:
        """The exit status of a script, less than 0 where a signal or the time limit ended it, and
        what it printed to stdout and to stderr."""
        assert self._server.stdin is not None and self._server.stdout is not None
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "script.py").write_text(script)
            self._server.stdin.write(json.dumps([name, seconds]) + "\n")
            self._server.stdin.flush()
            status = int(self._server.stdout.readline())
            out, err = ((folder / printed).read_text() for printed in ("out", "err"))
        return status, out, err
