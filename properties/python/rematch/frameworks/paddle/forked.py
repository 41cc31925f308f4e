"""Runs that may kill their process, each in a copy of it."""

import os
import pickle
import resource
from collections.abc import Callable

from rematch.subjects.protocol import Request
from rematch.subjects.records import Record


def forked(run: Callable[[Request, Record], None], request: Request, record: Record) -> None:
    """`run(request, record)`; if it dies, the record says of which signal."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            run(request, record)
            with os.fdopen(write, "wb") as answer:
                pickle.dump(record, answer)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        data = answer.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        record.error("Killed", f"the process died of signal {os.WTERMSIG(status)}")
    else:
        vars(record).update(vars(pickle.loads(data)))
