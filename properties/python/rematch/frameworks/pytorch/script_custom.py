"""Layers of the subject's own as scripts write them: by their expressions, after the lines of their
setup that these need."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from rematch.frameworks.pytorch.custom import CustomLayer, instances_of, makes_new, named_state
from rematch.protocol import Request, Unsupported

_KNOWN = {"torch", "nn", "F"}
_SEEDS = {"numpy": "{}.random.seed", "random": "{}.seed"}
"""How modules that layers draw from are seeded."""


def _replaced(expression: str, meant: Mapping[str, str]) -> str:
    """The expression with other names. Products of extents are worked out: "2 * C" is "6"."""
    source, tree = expression.strip().encode(), ast.parse(expression.strip(), mode="eval")
    if _bound(tree) & {*meant, *meant.values()}:
        raise Unsupported(f"a name of {expression!r} cannot be replaced: the expression binds it")
    places: list[tuple[int, int, str]] = []
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def visit(node: ast.AST) -> None:
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        known = isinstance(node, ast.Name) or (
            isinstance(node, ast.BinOp)
            and all(
                isinstance(n, (ast.BinOp, ast.Name, ast.Constant, ast.operator, ast.expr_context))
                for n in ast.walk(node)
            )
            and all(meant.get(name, "").isdigit() for name in names)
        )
        if known and names and names <= set(meant):
            text = ast.unparse(node)
            if isinstance(node, ast.BinOp):
                made = str(eval(text, {name: int(value) for name, value in meant.items()}))
            else:
                made = meant[text]
            begin = lines[node.lineno - 1] + node.col_offset
            places.append((begin, lines[node.end_lineno - 1] + node.end_col_offset, made))
            return
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree.body)
    for begin, end, made in sorted(places, reverse=True):
        source = source[:begin] + made.encode() + source[end:]
    return source.decode()


def _bound(tree: ast.AST) -> set[str]:
    """Names that are given a meaning anywhere in it."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return names


@dataclass(frozen=True)
class Statement:
    """One of the setup's own, with the names that it gives a meaning to and those that it uses."""

    text: str
    defines: frozenset[str]
    uses: frozenset[str]
    imports: bool


def _names_in(tree: ast.AST) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name))


def _defined(node: ast.stmt) -> frozenset[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return frozenset([node.name])
    return frozenset(_bound(node))


def statements_of(setup: str) -> list[Statement]:
    lines, found = setup.splitlines(), []
    for node in ast.parse(setup).body:
        decorators = getattr(node, "decorator_list", [])
        begin = min([node.lineno, *(d.lineno for d in decorators)])
        text = "\n".join(lines[begin - 1 : node.end_lineno])
        imports = isinstance(node, (ast.Import, ast.ImportFrom))
        found.append(Statement(text, _defined(node), _names_in(node), imports))
    return found


def _needed(setup: str, expressions: Iterable[str]) -> list[Statement]:
    """Those statements that the expressions need, in their order. What defines nothing may have an
    effect, and stays."""
    statements = statements_of(setup)
    used = {name for e in expressions for name in _names_in(ast.parse(e.strip(), mode="eval"))}
    kept: set[int] = set()
    pending = True
    while pending:
        pending = False
        for i, s in enumerate(statements):
            if i not in kept and (not s.defines or "*" in s.defines or s.defines & used):
                kept.add(i)
                used |= s.uses
                pending = True
    return [s for i, s in enumerate(statements) if i in kept]


def _attribute(owner: str, path: str) -> str:
    for part in path.split("."):
        owner += f"[{part}]" if part.isdigit() else f".{part}"
    return owner


@dataclass(frozen=True)
class CustomText:
    """The text of one custom layer of a case."""

    index: int
    own: CustomLayer
    operand: tuple[int, ...]
    module: nn.Module
    """One like that of the case."""
    double: bool
    trains: bool
    """Whether it runs in training mode."""
    detached: bool

    @property
    def name(self) -> str:
        return f"m{self.index}"

    @cached_property
    def parameters(self) -> list[str]:
        return [_attribute(self.name, path) for path, _ in self.module.named_parameters()]

    @property
    def frozen(self) -> bool:
        return not any(p.requires_grad for p in self.module.parameters())

    @property
    def seeded(self) -> bool:
        """Whether the module depends on the random state in which it is made."""
        return bool(self.parameters) or any(True for _ in self.module.buffers())

    @cached_property
    def _sample(self) -> tuple[list[str], bool]:
        """The state that a forward in training mode changes, and whether what comes of one in the
        case's mode is a tensor of its own."""
        dtype = torch.float64 if self.double else torch.float32
        with torch.random.fork_rng(devices=[]):
            x = torch.randn(self.operand, dtype=dtype)
            new = makes_new(x, self.own.run(self.module.train(self.trains), x))
            before = {path: value.clone() for path, value in named_state(self.module).items()}
            self.own.run(self.module.train(), x)
            after = named_state(self.module)
        changed = [path for path, value in after.items() if not torch.equal(value, before[path])]
        return changed, new

    @cached_property
    def state(self) -> list[str]:
        """Expressions of what its forwards change beside parameters, each a tensor."""
        buffers = {path for path, _ in self.module.named_buffers()}
        made = []
        for path in self._sample[0]:
            text = _attribute(self.name, path)
            made.append(text if path in buffers else f"torch.as_tensor({text})")
        return made

    @cached_property
    def statements(self) -> list[Statement]:
        return _needed(self.own.setup, [self.own.make, self.own.call])

    def seeding(self, seed: int) -> list[str]:
        """The lines that seed what the layer draws from beside PyTorch's generators."""
        if not (self.own.elsewhere and self.trains):
            return []
        lines = []
        for statement in self.statements:
            node = ast.parse(statement.text).body[0]
            for alias in node.names if isinstance(node, ast.Import) else ():
                if alias.name in _SEEDS:
                    seeds = _SEEDS[alias.name].format(alias.asname or alias.name)
                    lines.append(f"{seeds}({seed % 2**32})")
        if not lines:
            raise Unsupported(f"{self.own.name} draws from what no script knows how to seed")
        return lines

    def definition(self, seed: int | None) -> list[str]:
        """The lines that make the module. `seed`: the one of its weights, if it has one."""
        extents = {name: str(value) for name, value in self.own.extents(self.operand).items()}
        made = _replaced(self.own.make, extents)
        made += ".double()" if self.double and self.seeded else ""
        made += ".requires_grad_(False)" if self.parameters and self.frozen else ""
        made += "" if self.trains else ".eval()"
        lines = [] if seed is None or not self.seeded else [f"torch.manual_seed({seed})"]
        lines.append(f"{self.name} = {made}")
        if self.detached and self.parameters and not self.frozen:
            lines.append("# The reentrant variant takes these for constants.")
            lines.append(f"{self.name}.requires_grad_(checkpointed)")
        return lines

    def expression(self, x: str) -> str:
        made = _replaced(self.own.call, {"m": self.name, "x": x})
        # The next layer may write to it.
        if self._sample[1]:
            return made
        simple = isinstance(ast.parse(made, mode="eval").body, (ast.Call, ast.Name))
        return f"{made}.clone()" if simple else f"({made}).clone()"


def customs_of(request: Request, known: Mapping[str, CustomLayer]) -> dict[int, CustomText]:
    """The custom layers of a case, by their numbers. Raises Unsupported for one that cannot be
    written down."""
    made = {}
    for index, _ in request.model.custom_operands:
        own = known.get(request.case.layers[index].layer)
        if own is not None and (callable(own.make) or callable(own.call)):
            raise Unsupported(f"{own.name} is made or called by a function, not by an expression")
    with torch.random.fork_rng(devices=[]):
        instances = instances_of(request, known)
    for index, operand in request.model.custom_operands:
        made[index] = CustomText(
            index,
            instances[index].layer,
            tuple(operand),
            instances[index].module,
            request.case.dtype == "float64",
            request.case.layers[index].trains(request.case.protocol.train),
            index in request.detached_layers,
        )
    return made


def setup_of(customs: Iterable[CustomText], script: str, imports: str) -> tuple[list[str], list[str]]:
    """The import lines that the layers need beside `imports`, and the rest of their
    setup. `script`: what comes after it. Raises Unsupported where a name would mean two things."""
    owners: dict[str, str] = {}
    texts: dict[str, Statement] = {}
    for custom in customs:
        for statement in custom.statements:
            texts[statement.text] = statement
            for name in statement.defines:
                whole = "\n".join(s.text for s in custom.statements if name in s.defines)
                if owners.setdefault(name, whole) != whole:
                    raise Unsupported(f"two custom layers mean different things by {name}")
    present = _imported(imports)
    lines, rest = [], []
    for statement in texts.values():
        if not statement.imports:
            rest += [*statement.text.splitlines(), "", ""]
            continue
        given = _imported(statement.text)
        if any(present.get(name, origin) != origin for name, origin in given.items()):
            raise Unsupported(f"the script imports something else than {statement.text!r}")
        if not given.items() <= present.items():
            lines.append(statement.text)
    defined = {n for s in texts.values() for n in s.defines if not s.imports or n not in present}
    taken = defined & (_bound(ast.parse(script)) | set(present) | _KNOWN)
    if taken:
        raise Unsupported(f"the script has a {min(taken)} of its own")
    return lines, rest


def _imported(text: str) -> dict[str, str]:
    """Maps imported names to what they stand for."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                found[name] = alias.name if alias.asname else name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found
