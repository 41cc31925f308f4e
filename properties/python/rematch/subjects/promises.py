"""Promises: what no case can say, tried by small functions, one thing each, for every framework.

A promise gives what was expected and what came. It is kept if both are the same. A broken one is
told by its sentence and by the difference, and its source, with all that it uses, becomes the
script that shows it.

Most frameworks write a promise as a function that takes `checkpoint`, which makes a checkpointed
function of another one, and returns numbers. Called with a `checkpoint` that changes nothing,
whatever its options, it must return the same, and its docstring says what that means. What has no
plain twin returns a pair: what is expected, and what came. `checkpoint is plain` asks for the one that changes nothing.
Those of `promises_of_any.py` also take the framework's `gradients`.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType
from typing import Any

import numpy as np

from rematch.subjects.description import Description
from rematch.subjects.protocol import Unsupported
from rematch.subjects.source import ANNOTATION

Function = Callable[..., Any]

SHARE = 1 / 3
"""The share of cases whose checkpointed run tries a promise."""

NONE = "none"

_SCRIPT = """\
{comment}# {label}; run: python this_file.py
{imports}


{definitions}


expected, got = {attempt}
same = {same}
print("{expected}", expected)
print("{got}", got)
print("same" if same else "DIFFERENT")
raise SystemExit(0 if same else 1)
"""


@dataclass(frozen=True)
class Promise:
    """A function that tries something, and how it is judged and shown."""

    name: str
    sentence: str
    function: Function
    attempt: Callable[[], tuple[Any, Any]]
    """Returns what is expected and what came."""
    difference: Callable[[Any, Any], str]
    """Tells the two apart, behind the promise's name; "" if they are the same."""

    def broken(self) -> str:
        """What became of it, "" if it was kept."""
        wrong = self.difference(*self.attempt())
        return wrong and f"{self.sentence} Not so ({self.name}){wrong}"


def named(finding: str, promises: Iterable[Promise]) -> Promise:
    """The promise that a finding of broken() names. Raises Unsupported if none is known."""
    for promise in promises:
        if f"({promise.name})" in finding:
            return promise
    raise Unsupported("the finding names no promise that is known")


def script(
    finding: str,
    *,
    label: str,
    attempt: str,
    same: str,
    words: tuple[str, str],
    uses: Iterable[Function],
    imports: str = "",
) -> str:
    """The script for a finding: the promise, what it uses, and what it prints. `attempt`: the expression of what is
    expected and what came, which `words` name in what is printed; `uses`: functions in it; `same`: the expression
    that compares `expected` and `got`."""
    source = _Source()
    for function in uses:
        source.add(function)
    # What a framework imports may be code of several lines, whose order matters.
    more = [line for line in source.imports if line not in imports.splitlines()]
    more.sort(key=lambda line: (line.startswith("from"), line))
    wide = max(map(len, words)) + 1
    return _SCRIPT.format(
        comment="".join(f"# {line}".rstrip() + "\n" for line in finding.splitlines()),
        label=label,
        imports="\n".join(filter(None, (imports.rstrip(), *more))),
        definitions="\n\n\n".join(source.parts.values()),
        attempt=attempt,
        same=same,
        expected=f"{words[0]:{wide}}",
        got=f"{words[1]:{wide}}",
    )


class _Source:
    """Definitions of functions and of what they use, each behind what it needs."""

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}
        self.imports: dict[str, None] = {}

    def add(self, function: Function) -> None:
        self._name(sys.modules[function.__module__], function.__name__)

    def _name(self, module: ModuleType, name: str) -> None:
        """Adds the definition of a name of that module; what `rematch` does not define is
        imported."""
        text, statements = _parsed(module)
        for statement in statements:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                for alias in statement.names:
                    if alias.name == "*":
                        self._name(sys.modules[statement.module], name)
                    elif name == (alias.asname or alias.name).partition(".")[0]:
                        self._import(statement, alias)
            elif name in _defined(statement) and name not in self.parts:
                # Itself first: functions may call one another.
                self.parts[name] = ""
                for used in _used(statement):
                    self._name(module, used)
                del self.parts[name]
                self.parts[name] = _text(text, statement)

    def _import(self, statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> None:
        of = getattr(statement, "module", None) or ""
        if of.startswith("rematch"):
            self._name(sys.modules[of], alias.name)
            return
        one = ast.Import([alias]) if not of else ast.ImportFrom(of, [alias], 0)
        self.imports[ast.unparse(one)] = None


@cache
def _parsed(module: ModuleType) -> tuple[str, list[ast.stmt]]:
    """The text and statements of a module, in which definitions may lose annotations and decorators."""
    text = inspect.getsource(module)
    return text, ast.parse(text).body


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return []
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]


def _used(statement: ast.stmt) -> list[str]:
    """Names that a definition uses, but for its annotations, which scripts do not have."""
    if isinstance(statement, ast.FunctionDef):
        statement.decorator_list = _decorators(statement)
    for node in ast.walk(statement):
        for annotation in ("annotation", "returns"):
            if getattr(node, annotation, None):
                setattr(node, annotation, None)
    names = (n for n in ast.walk(statement) if isinstance(n, ast.Name))
    return list(dict.fromkeys(n.id for n in names if isinstance(n.ctx, ast.Load)))


def _decorators(statement: ast.stmt) -> list[ast.expr]:
    """All but the one that lists a promise."""
    found = getattr(statement, "decorator_list", [])
    return [d for d in found if not ast.unparse(d).startswith("probe(")]


def _text(source: str, statement: ast.stmt) -> str:
    lines = source.splitlines()[statement.lineno - 1 : statement.end_lineno]
    text = "\n".join([*(f"@{ast.unparse(d)}" for d in _decorators(statement)), *lines])
    return ANNOTATION.sub("", text)


def promises_in(scope: Mapping[str, Any]) -> tuple[Function, ...]:
    """The promises that a module defines or takes from another, in order. `scope`: its globals()."""
    homes = scope["__name__"], "rematch.frameworks.jax.promises"
    ours = (v for v in list(scope.values()) if (getattr(v, "__module__", None) or "").startswith(homes))
    return tuple(v for v in ours if callable(v) and list(inspect.signature(v).parameters) == ["checkpoint"])


def broken(framework: Description, function: Function) -> str:
    """What became of a promise of that framework, "" if it was kept."""
    return _twin(framework, function).broken()


def script_of(framework: Description, finding: str) -> str:
    """The script for a finding that quotes broken(). Raises Unsupported for any other."""
    promise = named(finding, (_twin(framework, function) for function in framework.promises))
    given = "".join(f", {name}={name}" for name in _given(framework, promise.function))
    return script(
        finding,
        label=framework.name,
        attempt=f"sides({promise.function.__name__}, {framework.checkpoint_function}{given})",
        same="np.array_equal(expected, got)",
        words=("plain", "checkpointed"),
        uses=[*framework.promise_helpers, promise.function, sides],
        imports=framework.imports,
    )


def _twin(framework: Description, function: Function) -> Promise:
    """A promise that compares a function that is checkpointed with its plain twin."""

    def message(error: Exception) -> str:
        framework.put_back()
        return framework.message(error)

    def difference(plain: Any, got: Any) -> str:
        if np.array_equal(plain, got):
            return ""
        return f" with {framework.checkpoint_function}: {_shown(got)}, plain {_shown(plain)}"

    sentence = " ".join(inspect.cleandoc(function.__doc__ or "").split())
    checkpoint = eval(framework.checkpoint_function, framework.names)
    attempt = partial(sides, function, checkpoint, message, **_given(framework, function))
    return Promise(function.__name__, sentence, function, attempt, difference)


def _given(framework: Description, function: Function) -> dict[str, Function]:
    """What the promise takes beside `checkpoint`, by name."""
    return {name: framework.names[name] for name in list(inspect.signature(function).parameters)[1:]}


def plain(function, **options):
    """The checkpoint that changes nothing."""
    return function


def sides(promise, checkpoint, message=str, **given):
    """Returns (expected, got): what a promise returns without and with a checkpoint, or the pair that it returns."""

    def outcome(wrap):
        try:
            found = promise(wrap, **given)
            return found if isinstance(found, tuple) else np.array(found)
        except Exception as error:
            return f"{type(error).__name__}: {message(error)}"

    expected, got = outcome(plain), outcome(checkpoint)
    return tuple(map(np.array, got)) if isinstance(got, tuple) else (expected, got)


def _shown(outcome: Any) -> str:
    return str(outcome.tolist() if isinstance(outcome, np.ndarray) else outcome)
