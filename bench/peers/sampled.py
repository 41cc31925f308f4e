"""A subject whose processor time is sampled: sampled.py FILE WHAT [OPTIONS]

Starts `python -m rematch WHAT [OPTIONS]`, and adds a line of JSON to FILE when it is over: the
processor time until it was warm (`start`), after that (`used`), and the samples of each part.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import sysconfig
from collections import Counter
from pathlib import Path
from types import FrameType

import rematch.__main__
from rematch import protocol

PACKAGE = str(Path(rematch.__main__.__file__).parent)
LIBRARIES = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
MESSAGES = ("protocol.py", "arrays.py", "case.py")
CALLS = ("model.py", "modules.py", "custom.py", "policy.py", "wrappers.py", "layers.py")
"""Files of the adapter of PyTorch that call layers, checkpoints and their functions."""


def part_of(file: str) -> str | None:
    """Whose time it is when a function of this file runs, or what it calls in C; None where its
    caller decides."""
    if file.startswith(PACKAGE):
        folder, name = os.path.split(file[len(PACKAGE) + 1 :])
        if name in MESSAGES and not folder:
            return "messages"
        # The folder of a framework is what it is called by, but for what PyTorch is watched with.
        place = folder.split(os.sep)
        own = place[0] == "frameworks" and (place[1:] != ["pytorch"] or name in CALLS)
        return "framework" if own else "adapter"
    if any(file.startswith(os.path.join(library, "numpy")) for library in LIBRARIES):
        return None
    # Models are written as source, which has no file.
    is_model = file.startswith("<") and not file.startswith("<frozen")
    if is_model or any(file.startswith(library) for library in LIBRARIES):
        return "framework"
    return None


def main() -> None:
    file, *words = sys.argv[1:]
    samples: Counter[str] = Counter()
    parts: dict[str, str | None] = {}
    begin: float | None = None

    def processor_seconds() -> float:
        both = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in both)

    def sample(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            name = frame.f_code.co_filename
            if name not in parts:
                parts[name] = part_of(name)
            if part := parts[name]:
                samples[part] += 1
                return
            frame = frame.f_back
        samples["adapter"] += 1

    def warm() -> None:
        nonlocal begin
        spare_the_collector()
        begin = processor_seconds()
        signal.signal(signal.SIGPROF, sample)
        signal.siginterrupt(signal.SIGPROF, False)
        # Interrupts in proportion to the processor time of all threads.
        signal.setitimer(signal.ITIMER_PROF, 0.002, 0.002)

    spare_the_collector, protocol._spare_the_collector = protocol._spare_the_collector, warm
    rematch.__main__.main(words)
    signal.setitimer(signal.ITIMER_PROF, 0)
    end = processor_seconds()
    start = end if begin is None else begin
    with open(file, "a") as lines:
        lines.write(json.dumps({"start": start, "used": end - start, **samples}) + "\n")
    # Ends here, so that the exit of the interpreter is not timed.
    os._exit(0)


if __name__ == "__main__":
    main()
