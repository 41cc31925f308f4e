"""The blocks of a model: those that it checkpoints, and its repeated children."""

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from rematch.journal.regions import Region, Regions
from rematch.safe.state import State


def outermost(region: Region, names: Mapping[nn.Module, str]) -> str:
    """Returns the name of the outermost module that `region` checkpoints; "" if it is the model, or none of `names`."""
    modules = State({"": region.function}).modules().values()
    return next((names[module] for module in modules if names.get(module)), "")


class Wrapped(Regions):
    """Notes the names of the modules that checkpoint() gets: the outermost one of each region."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.names: list[str] = []
        self._of = {module: name for name, module in model.named_modules()}
        self._first: str | None = None

    def enters(self, name: str) -> None:
        """The forward of a submodule begins."""
        self._first = self._first or name

    def begin(self, region: Region, recomputes: bool) -> Any:
        self._first = None
        return outermost(region, self._of)

    def end(self, token: Any) -> None:
        # The functions of several regions may hold all blocks, and run one each.
        name = token if token not in self.names else self._first
        if name and name not in self.names:
            self.names.append(name)


def repeated_children(model: nn.Module) -> list[str]:
    """Returns the outermost children of ModuleLists and Sequentials that hold several of their class, by name."""
    found: list[str] = []
    for name, module in model.named_modules():
        if any(name == block or name.startswith(block + ".") for block in found):
            continue
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            kinds = [type(child) for child in module.children()]
            for key, child in module.named_children():
                trains = any(True for _ in child.parameters())
                if trains and kinds.count(type(child)) > 1 and any(True for _ in child.children()):
                    found.append(f"{name}.{key}" if name else key)
    return found


def chosen_blocks(
    model: nn.Module, patterns: str | Sequence[str] | None, wrapped: list[str], ran: Collection[str]
) -> list[str]:
    """Returns the names of blocks among the submodules `ran`: those that match `patterns`, such as "layers.*"; without
    patterns those that the model's own switch wraps, else repeated children, else its children with parameters."""
    if patterns is not None:
        each = [patterns] if isinstance(patterns, str) else patterns
        alike = [(pattern, pattern.count(".")) for pattern in each]
        return [n for n in ran if n and any(n.count(".") == dots and fnmatchcase(n, p) for p, dots in alike)]
    found = wrapped or repeated_children(model)
    if not found:
        parts = ((n, child) for n, child in model.named_children() if not isinstance(child, nn.Embedding))
        found = [name for name, child in parts if any(True for _ in child.parameters())]
    return [name for name in found if name in ran]
