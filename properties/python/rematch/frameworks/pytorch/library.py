"""The layers that samples.py finds in this PyTorch, kept in a file, as finding them takes a minute."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from rematch.frameworks.pytorch.custom import CustomLayer

SETUP = """\
import math


def floats(value):
    if isinstance(value, torch.Tensor):
        value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
        return [value.flatten()] if value.is_floating_point() else []
    return [part for v in value for part in floats(v)] if isinstance(value, (tuple, list)) else []


def fit(value, *shape):  # its numbers in that shape: again and again, or means of them
    numbers, size = torch.cat(floats(value)), math.prod(shape)
    if len(numbers) <= size:
        return numbers.repeat(-(-size // len(numbers)))[:size].reshape(shape)
    return F.pad(numbers, (0, -len(numbers) % size)).reshape(-1, size).mean(0).reshape(shape)


def grid(x, *shape):
    return torch.linspace(0.1, 0.9, math.prod(shape), dtype=x.dtype).reshape(shape)
"""
SHAPES = "N ... -> N ..."
"""All take any shape, and make what the sample wants of it."""

_SAMPLES = Path(__file__).with_name("samples.py")


@lru_cache(1)
def found() -> dict[str, Any]:
    """The layers, and those "not tried" with the reason."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rematch" / "modules"
    cache.mkdir(parents=True, exist_ok=True)
    kept = cache / f"torch-{torch.__version__}-{sha256(_SAMPLES.read_bytes()).hexdigest()[:12]}.json"
    with open(cache / "lock", "w") as lock:
        # Workers of a hunt start side by side.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            words = [sys.executable, "-m", "rematch.frameworks.pytorch.samples"]
            paths = os.pathsep.join(path for path in sys.path if path)
            made = subprocess.run(words, capture_output=True, env=os.environ | {"PYTHONPATH": paths}, text=True)
            if made.returncode:
                reason = made.stderr.strip().rpartition("\n")[2]
                print(f"modules and operators of PyTorch are not tried: {reason}", file=sys.stderr)
                return {"layers": [], "not tried": {"torch": reason}}
            new = kept.with_suffix(".new")
            new.write_text(made.stdout)
            new.rename(kept)
    return json.loads(kept.read_text())


@lru_cache(1)
def library() -> tuple[CustomLayer, ...]:
    return tuple(
        CustomLayer(name, SHAPES, make, call, setup=SETUP, traits=traits)
        for name, make, call, traits in found()["layers"]
    )
