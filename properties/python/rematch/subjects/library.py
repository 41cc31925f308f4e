"""Layers of a framework's library: what says how to find them, and a file that keeps them, as finding them takes a
minute or more (samples.py)."""

import fcntl
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from rematch.subjects.adapter_layers import Module

SHAPES = "N ... -> N ..."
"""All take any shape, and make what the sample wants of it."""


@dataclass(frozen=True)
class Library:
    """Where a framework's layers are, and how they are made and called.

    `home` and `base` are expressions of the module whose classes they are, and of the class that they are derived
    from; `entry` is the method that a call of one ends in. `make` and `calls` are what is done with the expression
    `{make}` of one and with the operands `{given}` of a call, followed by `{named}`, those arguments of `named` that it
    takes; of several calls the first that works counts. `values`: what parameters get that have no default, by
    "name", and what those get that have one, by "Class.name". `shapes`: operands. `words`: those that start
    the subject.
    """

    home: str
    base: str
    words: tuple[str, ...]
    entry: str = "__call__"
    make: str = "{make}"
    calls: Sequence[str] = ("fit(m({given}{named}), *x.shape)",)
    named: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    number: str = ""
    """The framework's array of NumPy's `{array}` of numbers, with the dtype of `x`, if script_array does not do."""
    shapes: Sequence[tuple[int, ...]] = ((2, 4), (2, 3, 4), (2, 4, 4, 4), (2, 4, 4, 4, 4))
    most: int = 6
    """How many samples of a class are kept."""


@cache
def kept(name: str, sources: tuple[str, ...], module: str, *words: str) -> dict[str, Any]:
    """What `python -m module words` prints: "layers", and those "not tried" with the reason. It is run again where the
    name is another, or the files `sources`."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rematch" / "modules"
    folder.mkdir(parents=True, exist_ok=True)
    digest = sha256(b"".join(Path(source).read_bytes() for source in sources)).hexdigest()[:12]
    file = folder / f"{name}-{digest}.json"
    with open(folder / f"{name}.lock", "w") as lock:
        # Workers of a hunt start side by side.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            paths = os.pathsep.join(path for path in sys.path if path)
            environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
            made = subprocess.run(
                [sys.executable, "-m", module, *words], capture_output=True, env=environment, text=True
            )
            if made.returncode:
                reason = made.stderr.strip().rpartition("\n")[2]
                print(f"layers of {name} are not tried: {reason}", file=sys.stderr)
                return {"layers": [], "not tried": {name: reason}}
            new = file.with_suffix(".new")
            new.write_text(made.stdout.rstrip().rpartition("\n")[2])
            new.rename(file)
    return json.loads(file.read_text())


def of_library(library: Library, versions: Mapping[str, str], adapter: str) -> dict[str, Any]:
    """What is found of a library by the framework that the file `adapter` describes, with those beside it."""
    beside = [file for file in sorted(Path(adapter).parent.glob("*.py")) if not file.name.startswith("test_")]
    sources = [str(file) for file in (Path(__file__), Path(__file__).with_name("samples.py"), *beside)]
    name = "-".join([*library.words, *versions.values()]).replace("--", "")
    return kept(name, tuple(sources), "rematch.subjects.samples", *library.words)


def modules(found: Mapping[str, Any]) -> tuple[Module, ...]:
    return tuple(Module(name, SHAPES, make, traits, call) for name, make, call, traits in found["layers"])


def summary(found: Mapping[str, Any]) -> str:
    """How many samples of each class cases may have, and why others are not tried."""
    samples = Counter(name.rpartition(".")[0] for name, *_ in found["layers"])
    return json.dumps({"samples": samples, "not tried": found["not tried"]}, indent=2)
