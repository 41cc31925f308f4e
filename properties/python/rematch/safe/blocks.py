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
    return next((names[module] for module in modules if module in names), "")


class Wrapped(Regions):
    """Notes the modules that checkpoint() gets: what the function of each region holds, and what runs in it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._of = {module: name for name, module in model.named_modules()}
        self._regions: dict[str, list[str]] = {}
        """By the outermost module that the functions of regions hold: the one that ran in each, "" for several."""
        self._open: list[list[str]] = []
        """What ran in each region that is open: modules that lie in no other one of these."""

    def enters(self, name: str) -> None:
        """The forward of a submodule begins."""
        for ran in self._open:
            if not any(name.startswith(f"{other}.") for other in ran):
                ran.append(name)

    def begin(self, region: Region, recomputes: bool) -> Any:
        self._open.append([])
        return outermost(region, self._of)

    def end(self, token: Any) -> None:
        ran = self._open.pop()
        self._regions.setdefault(token, []).append(ran[0] if len(ran) == 1 else "")

    @property
    def names(self) -> list[str]:
        """The names of the blocks. Where the functions of several regions hold all blocks, and run one each, these."""
        found: dict[str, None] = {}
        for held, ran in self._regions.items():
            runs_one_each = all(ran) and (not held or len(set(ran)) > 1)
            found.update(dict.fromkeys(ran if runs_one_each else [held] if held else []))
        return list(found)


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
    found = [name for name in wrapped if name in ran] or repeated_children(model)
    if not found:
        parts = ((n, child) for n, child in model.named_children() if not isinstance(child, nn.Embedding))
        found = [name for name, child in parts if any(True for _ in child.parameters())]
    return [name for name in found if name in ran]
