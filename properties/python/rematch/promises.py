"""What no case can say: small functions whose checkpointed twin must do the same.

A promise takes `checkpoint`, which turns a function into one that is checkpointed, and returns
numbers. Called with a `checkpoint` that changes nothing, whatever its options, it must return the
same, and its docstring says what that means. What has no plain twin returns a pair: what is
expected, and what came. Its source becomes the script that shows it broken.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rematch.description import Description
from rematch.protocol import Unsupported
from rematch.source import ANNOTATION

Promise = Callable[[Callable[..., Any]], Any]

_ONE_OF = 3
"""So many checkpointed runs try one promise, by the seeds of their cases."""

_SCRIPT = """\
{imports}
import numpy as np


{helpers}{source}


def outcome(wrap):
    try:
        found = {name}(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"


plain, checkpointed = outcome(lambda function, **options: function), outcome({checkpoint})
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
same = np.array_equal(plain, checkpointed)
print("same" if same else "DIFFERENT")
raise SystemExit(0 if same else 1)
"""


def promises_in(scope: Mapping[str, Any]) -> tuple[Promise, ...]:
    """The promises that a module defines, in order. `scope`: its globals()."""
    own = (v for v in list(scope.values()) if getattr(v, "__module__", "") == scope["__name__"])
    return tuple(v for v in own if callable(v) and list(inspect.signature(v).parameters) == ["checkpoint"])


def promise_for(framework: Description, seed: int) -> Promise | None:
    """The promise that the case of that seed tries."""
    if not framework.promises or seed % _ONE_OF:
        return None
    return framework.promises[seed // _ONE_OF % len(framework.promises)]


def broken(framework: Description, promise: Promise) -> str:
    """What became of it, "" if it was kept."""
    checkpoint = eval(framework.checkpoint_function, framework.names)
    plain = _outcome(framework, promise, lambda function, **options: function)
    got = _outcome(framework, promise, checkpoint)
    plain, got = map(np.array, got) if isinstance(got, tuple) else (plain, got)
    if np.array_equal(plain, got):
        return ""
    sentence = " ".join(inspect.cleandoc(promise.__doc__ or "").split())
    return (
        f"{sentence} Not so ({promise.__name__}) with {framework.checkpoint_function}: "
        f"{_text(got)}, plain {_text(plain)}"
    )


def script_of(framework: Description, finding: str) -> str:
    """The script for a finding that quotes broken(). Raises Unsupported for any other."""
    for promise in framework.promises:
        if f"({promise.__name__})" in finding:
            text = _SCRIPT.format(
                imports=framework.imports,
                helpers="".join(f"{_source(h)}\n\n\n" for h in framework.promise_helpers),
                source=_source(promise),
                name=promise.__name__,
                checkpoint=framework.checkpoint_function,
            )
            comment = "".join(f"# {line}".rstrip() + "\n" for line in finding.splitlines())
            return f"{comment}# {framework.name}; run: python this_file.py\n{text}"
    raise Unsupported("the finding names no promise that the adapter knows")


def _outcome(framework: Description, promise: Promise, checkpoint: Callable[..., Any]) -> Any:
    try:
        found = promise(checkpoint)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        framework.put_back()
        return f"{type(error).__name__}: {framework.message(error)}"


def _source(function: Callable[..., Any]) -> str:
    return ANNOTATION.sub("", inspect.getsource(function).rstrip())


def _text(outcome: Any) -> str:
    return str(outcome.tolist() if isinstance(outcome, np.ndarray) else outcome)
