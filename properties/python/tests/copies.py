"""Starts programs in Python as copies of one process that has imported PyTorch and nothing of this package:
a program of its own would import it for longer than most tests take."""

import atexit
import fcntl
import os
import runpy
import sys
import tempfile
import types
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection

_SERVER = get_context("forkserver")
_SERVER.set_forkserver_preload(["torch", "torch._dynamo"])


def _run(arguments: Sequence[str], given: Sequence[Connection], folder: str, env: dict[str, str]) -> None:
    """In a copy: runs a program, as its own process would. `given`: its descriptors from 0 on."""
    high = [fcntl.fcntl(pipe.fileno(), fcntl.F_DUPFD, 100) for pipe in given]
    for descriptor, copied in enumerate(high):
        os.dup2(copied, descriptor)
    os.closerange(len(high), 200)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in env
    option, program, *rest = arguments if arguments[0] in ("-c", "-m") else ["", *arguments]
    sys.path[:0] = ["", *env.get("PYTHONPATH", "").split(":")]
    sys.argv = [option or program, *rest]
    try:
        if option == "-c":
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(program, "<string>", "exec"), vars(main))
        elif option == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program, run_name="__main__")
    finally:
        atexit._run_exitfuncs()


class Copy:
    """A running program, as subprocess.Popen shows one. `files`: its descriptors from 3 on."""

    def __init__(self, arguments: Sequence[str], files: Sequence[int], folder: str, env: dict[str, str]) -> None:
        self._printed = [tempfile.TemporaryFile() for _ in range(2)]
        with open(os.devnull) as nothing, ExitStack() as stack:
            descriptors = [nothing.fileno(), *(p.fileno() for p in self._printed), *files]
            given = [stack.enter_context(Connection(os.dup(descriptor))) for descriptor in descriptors]
            self._process = _SERVER.Process(target=_run, args=(arguments, given, folder, env))
            self._process.start()

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        self._process.join(timeout)
        self.returncode = self._process.exitcode
        if self.returncode is None:
            raise TimeoutError
        for printed in self._printed:
            printed.seek(0)
        out, err = (printed.read() for printed in self._printed)
        return out, err
