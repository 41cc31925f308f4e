"""Starts programs in Python as copies of one process that has imported PyTorch and nothing of this package:
a program of its own would import it for longer than most tests take."""

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache

# Each copy has a parent of its own, which waits for its end and tells it. Programs end without Python's finalization.
_SERVER = """\
import atexit, fcntl, json, os, runpy, socket, sys, traceback, types
import torch, torch._dynamo

def run(arguments, env, folder):
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in env
    option, program, *rest = arguments if arguments[0] in ("-c", "-m") else ["", *arguments]
    sys.path[:0] = ["", *env.get("PYTHONPATH", "").split(":")]
    sys.argv = [option or program, *rest]
    if option == "-c":
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), vars(main))
    elif option == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")

def status_of(*program):
    try:
        run(*program)
        return 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1

requests = socket.socket(fileno=0)
while True:
    text, given, _, _ = socket.recv_fds(requests, 1 << 20, 6)
    if not text:
        os._exit(0)
    if waits := os.fork():
        os.waitpid(waits, 0)
        for descriptor in given:
            os.close(descriptor)
    elif os.fork():
        os._exit(0)
    elif copy := os.fork():
        ended = socket.socket(fileno=given.pop())
        for descriptor in given:
            os.close(descriptor)
        ended.send(str(copy).encode())
        ended.send(str(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])).encode())
        os._exit(0)
    else:
        high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 100) for descriptor in given[:-1]]
        for descriptor, copied in enumerate(high):
            os.dup2(copied, descriptor)
        os.closerange(len(high), 200)
        status = status_of(*json.loads(text))
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
"""


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = subprocess.Popen([sys.executable, "-I", "-c", _SERVER], stdin=theirs)
    theirs.close()
    atexit.register(server.wait)
    atexit.register(ours.close)
    return ours


class Copy:
    """A running program, as subprocess.Popen shows one. `files`: its descriptors from 3 on."""

    def __init__(self, arguments: Sequence[str], files: Sequence[int], folder: str, env: dict[str, str]) -> None:
        self._printed = [tempfile.TemporaryFile() for _ in range(2)]
        self._ended, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with open(os.devnull) as nothing, theirs:
            given = [nothing.fileno(), *(p.fileno() for p in self._printed), *files, theirs.fileno()]
            socket.send_fds(_server(), [json.dumps([arguments, env, folder]).encode()], given)
        self.pid = int(self._ended.recv(20))

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        self._ended.settimeout(timeout)
        self.returncode = int(self._ended.recv(20))
        self._ended.close()
        for printed in self._printed:
            printed.seek(0)
        out, err = (printed.read() for printed in self._printed)
        return out, err
