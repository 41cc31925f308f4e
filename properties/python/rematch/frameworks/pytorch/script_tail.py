"""Text around the runs of a script: imports, a policy, the comparison."""

from __future__ import annotations

import re

from rematch.frameworks.pytorch.script_counts import LEFT_BEHIND
from rematch.frameworks.pytorch.script_layers import Style

_SAME = {
    "none": "torch.equal(a, b)",
    "bits": "torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))",
    "nan": "torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)",
}
"""When two tensors are the same, where either may be None."""


def _same(compare: str) -> list[str]:
    if compare == "equal":
        return []
    lines = ["def same(a, b):", "    if a is None or b is None:", "        return a is b"]
    if compare == "bits":
        lines.append("    # To the bit: 0 is not -0.")
    return [*lines, f"    return {_SAME[compare]}", "", ""]


_VALUES = """\
plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not same(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\\n  plain         {expected}\\n  checkpointed  {got}")
    print("  difference   ", "" if expected is None or got is None else got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
"""

_ERRORS = """\
def outcome(checkpointed):
    try:
        run(checkpointed)
    except (IndexError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


plain, checkpointed = outcome(checkpointed=False), outcome(checkpointed=True)
print("plain:       ", plain)
print("checkpointed:", checkpointed)
different = (plain == "no error") != (checkpointed == "no error")
print("DIFFERENT: only one of them fails" if different else "same")
sys.exit(1 if different else 0)
"""

_SILENT = """\
def outcome(checkpointed):
    try:
        return run(checkpointed, change=True)
    except RuntimeError as error:
        return f"RuntimeError: {error}"


right, changed = run(checkpointed=True, change=False), outcome(checkpointed=True)
print("nothing changed:       ", right)
print("changed, plain:        ", outcome(checkpointed=False))
print("changed, checkpointed: ", changed)
if isinstance(changed, str):
    print("same: an error is raised")
    sys.exit(0)
wrong = [name for name in right if not same(right[name], changed[name])]
print("DIFFERENT: no error is raised" + "".join(f", {name} is wrong" for name in wrong))
sys.exit(1)
"""


def tail(style: Style, aspects: tuple[str, ...]) -> list[str]:
    """The lines after run()."""
    if "error" in aspects:
        return _ERRORS.splitlines()
    if "left behind" in aspects:
        return LEFT_BEHIND.splitlines()
    rest = _SILENT if "no error" in aspects else _VALUES
    if style.compare == "equal":
        # No tensor is missing.
        rest = rest.replace("same(plain[name]", "torch.equal(plain[name]")
        rest = rest.replace("same(right[name]", "torch.equal(right[name]")
        rest = rest.replace('"" if expected is None or got is None else ', "")
    if style.compare == "bits":
        rest = "torch.set_printoptions(precision=9)\n" + rest
    return [*_same(style.compare), *rest.splitlines()]


CALL = [
    "def call(function, *args, **options):",
    "    return checkpoint(function, *args, **options) if checkpointed else function(*args)",
    "",
]
"""The function by which a run with several checkpoints calls them."""

CALL_WITH_KEYWORDS = [
    "def call(function, *args, keywords={}, **options):",
    "    if checkpointed:",
    "        return checkpoint(function, *args, **keywords, **options)",
    "    return function(*args, **keywords)",
    "",
]
"""The same, where some are handed tensors by keyword."""

_FLAG = """\
kept = False


@contextmanager
def keep():
    global kept
    kept = True
    try:
        yield
    finally:
        kept = False


"""

_POLICY = """\
def policy(ctx, op, *args, **kwargs):
    if {kept}not op.is_view and not op._schema.is_mutable and "empty" not in str(op):
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


contexts = partial(create_selective_checkpoint_contexts, policy)


"""


def helpers_of(style: Style, policy: bool, flagged: bool) -> list[str]:
    """The lines before run(). `policy`: one decides what is saved; `flagged`: in keep() only."""
    lines = []
    if style.nan:
        lines = ["torch.use_deterministic_algorithms(True)  # memory that nobody wrote to is NaN"]
        lines += ["", ""]
    if policy:
        lines += _FLAG.splitlines() if flagged else []
        lines += _POLICY.format(kept="kept and " if flagged else "").splitlines()
    return lines


def imports_of(text: str, own: str = "") -> list[str]:
    """The lines that import what `text` uses. `own`: those that import the user's checkpoint()."""
    modules = ("faulthandler", "os", "sys", "tempfile", "time", "weakref")
    lines = [f"import {m}" for m in modules if re.search(rf"(?<![.\w]){m}\.\w", text)]
    collections = [name for name in ("Counter", "defaultdict") if f"{name}(" in text]
    if collections:
        lines.append(f"from collections import {', '.join(collections)}")
    scopes = [name for name in ("contextmanager", "nullcontext") if name in text]
    if scopes:
        lines.append(f"from contextlib import {', '.join(scopes)}")
    if "partial(" in text:
        lines.append("from functools import partial")
    lines += ["", "import torch"]
    short = {"distributed": "dist", "multiprocessing": "mp", "nn": "nn", "nn.functional": "F"}
    for module, name in short.items():
        if re.search(rf"(?<![.\w]){name}\.\w", text):
            lines.append(f"import torch.{module} as {name}")
    graph = [name for name in ("save_on_cpu", "saved_tensors_hooks") if f"{name}(" in text]
    if graph:
        lines.append(f"from torch.autograd.graph import {', '.join(graph)}")
    parallel = {
        "distributed.device_mesh": "init_device_mesh",
        "distributed.fsdp": "fully_shard",
        "nn.parallel": "DistributedDataParallel",
    }
    for module, name in parallel.items():
        if f"{name}(" in text:
            lines.append(f"from torch.{module} import {name}")
    names = ("CheckpointPolicy", "checkpoint", "create_selective_checkpoint_contexts")
    if own:
        names = tuple(name for name in names if name != "checkpoint")
    used = [name for name in names if re.search(rf"(?<![.\w]){name}(\(|,|\.\w)", text)]
    if used:
        lines.append(f"from torch.utils.checkpoint import {', '.join(used)}")
    return [*lines, *(line for line in own.splitlines() if not line or line not in lines)]
