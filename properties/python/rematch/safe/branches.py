"""Branches in a target's own code that a value, chance or a counter decides, and which sides of them ran."""

import ast
import dis
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from rematch.safe.callers import tree_of
from rematch.safe.values import is_library

_VALUES = {"item", "tolist", "any", "all", "equal", "allclose", "isnan", "isinf", "isfinite", "max", "min"}
_CHANCE = {"random", "uniform", "rand", "randint", "randrange", "choice", "bernoulli", "gauss", "normal"}
_TYPES = {"shape", "dtype", "device", "ndim", "layout", "training"}
_TYPE_CALLS = {"size", "dim", "numel", "nelement", "get"}
_BUILTIN = {"isinstance", "issubclass", "hasattr", "callable", "len", "type"}
WHY_NOT = "Python 3.11 is the first to tell them apart"
TRACED = "a debugger or a measurement of coverage traces the process"


@dataclass
class _Test:
    """A condition, or one operand of `and` and `or`."""

    text: str
    by_value: bool
    """Whether it reads values of tensors or draws random numbers."""
    chains: list[ast.expr]
    """The names and attributes that it reads."""
    outcomes: set[bool] = field(default_factory=set)
    numbers: set[tuple[Any, ...]] = field(default_factory=set)
    """The values of the numbers among these attributes and globals, one tuple for each visit."""

    def visit(self, frame: types.FrameType) -> None:
        """Notes the values that the condition reads in `frame`."""
        numbers = []
        for chain in self.chains:
            value = _resolved(chain, frame)
            self.by_value |= isinstance(value, Tensor)
            own = isinstance(chain, ast.Attribute) or getattr(chain, "id", "") not in frame.f_locals
            numbers += [value] if own and type(value) in (int, float) else []
        self.numbers.add(tuple(numbers))


_Jump = tuple[int, int, bool, _Test]
"""The offset of a jump, that of the next instruction, whether the test is true if it does not jump, and the test."""


class Branches:
    """Watches the branches of `functions` that are not a library's, unless `why_not` says why it cannot."""

    def __init__(self, functions: Iterable[types.FunctionType]) -> None:
        self._own: set[types.CodeType] = set()
        self._tests: dict[types.CodeType, dict[int, _Jump]] = {}
        """The jumps of functions that ran."""
        for function in functions:
            if not is_library(function.__module__):
                self._look_at(function.__code__)
        self.why_not = "" if sys.version_info >= (3, 11) else WHY_NOT

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Within, notes which sides of branches this thread takes."""
        if sys.gettrace() is not None:
            self.why_not = TRACED
        if self.why_not:
            yield
            return
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)

    def one_sided(self) -> list[tuple[str, str]]:
        """Returns each branch of which only one side ever ran, with a reason: entries for Verdict.not_tried."""
        if self.why_not:
            return [("branches that a value or a counter decides", self.why_not)]
        tests = {t.text: t for jumps in self._tests.values() for *_, t in jumps.values()}.values()
        decided = [t for t in tests if len(t.outcomes) == 1 and (t.by_value or len(t.numbers) > 1)]
        return [(t.text, f"it was {str(min(t.outcomes)).lower()} in every run") for t in decided]

    def _look_at(self, code: types.CodeType) -> None:
        self._own.add(code)
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                self._look_at(inner)

    def _enter(self, frame: types.FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if code not in self._own:
            return None
        if code not in self._tests:
            templates = _jumps_of(code).items()
            self._tests[code] = {
                at: (*to, replace(test, outcomes=set(), numbers=set())) for at, (*to, test) in templates
            }
        jumps = self._tests[code]
        if not jumps:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        last: _Jump | None = None

        def inside(frame: types.FrameType, event: str, arg: Any) -> Callable[..., Any]:
            nonlocal last
            if event == "opcode":
                if last is not None:
                    at, after, falls, test = last
                    test.outcomes.add((at < frame.f_lasti <= after) is falls)
                last = jumps.get(frame.f_lasti)
                if last is not None:
                    last[3].visit(frame)
            return inside

        return inside


@functools.cache
def _jumps_of(code: types.CodeType) -> dict[int, _Jump]:
    """Returns the jumps of a function that a condition decides, by offset."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("EXTENDED_ARG", "TO_BOOL")]
    jumps = [i for i, step in enumerate(steps) if "IF_TRUE" in step.opname or "IF_FALSE" in step.opname]
    tests = _tests_of(code.co_filename) if jumps else {}
    found = {}
    for i in jumps:
        # The operation that computes the condition has its position in the source; some jumps do not.
        place = getattr(steps[i - 1], "positions", None)
        test = tests.get(tuple(place)) if place else None
        if test is not None:
            found[steps[i].offset] = steps[i].offset, steps[i + 1].offset, "IF_FALSE" in steps[i].opname, test
    return found


@functools.cache
def _tests_of(file: str) -> dict[tuple[Any, ...], _Test]:
    """Returns the conditions in a file that may depend on values or counters, by their position in the source."""
    found = {}
    functions = (
        n for n in ast.walk(tree_of(file)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    )
    for function in functions:
        set_to = [pair for part in ast.walk(function) for pair in _assigned(part)]
        read = {name for name, value in set_to if value} - {name for name, value in set_to if not value}
        for node in ast.walk(function):
            whole = [node.test] if isinstance(node, (ast.If, ast.While, ast.IfExp)) else getattr(node, "ifs", [])
            for test in (operand for part in whole for operand in _operands(part)):
                by_value, chains = _reads(test)
                by_value |= any(isinstance(chain, ast.Name) and chain.id in read for chain in chains)
                if by_value or chains:
                    span = test.lineno, test.end_lineno, test.col_offset, test.end_col_offset
                    place = f"{Path(file).name}:{test.lineno}"
                    found[span] = _Test(f"the branch at {place} by {ast.unparse(test)}", by_value, chains)
    return found


def _assigned(node: ast.AST) -> list[tuple[str, bool]]:
    """Returns the variables that a statement sets, each with whether tensor values or chance decide its new value."""
    if not isinstance(node, (ast.Assign, ast.NamedExpr)):
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [(target.id, _reads(node.value)[0]) for target in targets if isinstance(target, ast.Name)]


def _operands(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _operands(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _operands(test.operand)
    else:
        yield test


def _reads(node: ast.AST) -> tuple[bool, list[ast.expr]]:
    """Returns whether an expression reads values of tensors or draws numbers, and the names and attributes that it also
    reads. The metadata of a tensor and a test for None do not count."""
    if isinstance(node, ast.Compare) and all(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops):
        return False, []
    if isinstance(node, (ast.Name, ast.Attribute)):
        if isinstance(node, ast.Attribute) and (node.attr in _TYPES or node.attr.startswith("is_")):
            return False, []
        return (False, [node]) if _is_chain(node) else _reads(node.value)  # type: ignore[union-attr]
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in _TYPE_CALLS or name in _BUILTIN or (name.startswith("is_") and name != "is_nonzero"):
            return False, []
        if isinstance(node.func, ast.Attribute) and name in _VALUES | _CHANCE:
            return True, []
    parts = [_reads(part) for part in ast.iter_child_nodes(node) if not isinstance(part, ast.expr_context)]
    return any(by for by, _ in parts), [chain for _, chains in parts for chain in chains]


def _is_chain(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_chain(node.value))


def _resolved(chain: ast.expr, frame: types.FrameType) -> Any:
    """Returns the value of a name or an attribute in a frame, without running code of the target."""
    if isinstance(chain, ast.Name):
        return frame.f_locals.get(chain.id, frame.f_globals.get(chain.id))
    assert isinstance(chain, ast.Attribute)
    owner = _resolved(chain.value, frame)
    try:
        held = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return None
    return held.get(chain.attr, (held.get("_buffers") or {}).get(chain.attr))
