"""The script for a promise that PyTorch does not keep: its source, and what that uses."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from types import ModuleType

import torch

from rematch.frameworks.pytorch import contract
from rematch.frameworks.pytorch.contract import promise as helpers
from rematch.protocol import Unsupported

_HELPER = re.compile(r"\bp\.(?=(\w+))")
_SCRIPT = """\
{comment}# torch {version}; run: python this_file.py
{imports}

{definitions}


warnings.simplefilter("ignore")
try:
    {name}()
except Exception as error:
    raise SystemExit(f"NOT KEPT: {{type(error).__name__}}: {{error}}")
print("kept")
"""


def script_of(finding: str) -> str:
    """The script for a finding that quotes promise.broken(). Raises Unsupported for what a promise
    leaves behind, which a script does not show, and for any other finding."""
    for kept in contract.PROMISES:
        if f"({kept.__name__})" not in finding:
            continue
        if "left behind: " in finding:
            raise Unsupported("a script does not show which settings a promise leaves changed")
        parts: dict[str, str] = {}
        imports: dict[str, None] = {"import warnings": None}
        _collect(sys.modules[kept.__module__], kept.__name__, parts, imports)
        return _SCRIPT.format(
            comment="".join(f"# {line}".rstrip() + "\n" for line in finding.splitlines()),
            version=torch.__version__,
            imports="\n".join(sorted(imports, key=lambda line: (line.startswith("from"), line))),
            definitions="\n\n\n".join(parts.values()),
            name=kept.__name__,
        )
    raise Unsupported("the finding names no promise that is known")


def _collect(
    module: ModuleType, name: str, parts: dict[str, str], imports: dict[str, None]
) -> None:
    """Adds the definition of a name of the module behind those of what it uses; `imports` gets
    those of what is defined elsewhere."""
    source = inspect.getsource(module)
    for statement in ast.parse(source).body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                if name == (alias.asname or alias.name).partition(".")[0]:
                    _import(statement, alias, parts, imports)
        elif name in _defined(statement) and name not in parts:
            # Itself first: functions may call one another.
            parts[name] = ""
            if isinstance(statement, ast.FunctionDef):
                statement.decorator_list = _decorators(statement)
            for node in ast.walk(statement):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    if node.value.id == "p":
                        _collect(helpers, node.attr, parts, imports)
                elif isinstance(node, ast.Name) and node.id != "p":
                    _collect(module, node.id, parts, imports)
            del parts[name]
            parts[name] = _text(source, statement)


def _import(
    statement: ast.Import | ast.ImportFrom,
    alias: ast.alias,
    parts: dict[str, str],
    imports: dict[str, None],
) -> None:
    of = getattr(statement, "module", None) or ""
    if of.startswith("rematch"):
        _collect(sys.modules[of], alias.name, parts, imports)
        return
    one = ast.Import([alias]) if not of else ast.ImportFrom(of, [alias], 0)
    imports[ast.unparse(one)] = None


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return []
    stored = (n for n in ast.walk(statement) if isinstance(n, ast.Name))
    return [n.id for n in stored if isinstance(n.ctx, ast.Store)]


def _decorators(statement: ast.stmt) -> list[ast.expr]:
    """All but the one that lists a promise."""
    found = getattr(statement, "decorator_list", [])
    return [d for d in found if not ast.unparse(d).startswith("p.promise")]


def _text(source: str, statement: ast.stmt) -> str:
    """Without the prefix of helpers."""
    lines = source.splitlines()[statement.lineno - 1 : statement.end_lineno]
    text = "\n".join([*(f"@{ast.unparse(d)}" for d in _decorators(statement)), *lines])
    return _HELPER.sub(lambda found: "" if hasattr(helpers, found[1]) else "p.", text)
