"""The options for a block, and how a choice is put on a model."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from rematch.frameworks.pytorch.operators import ATTENTION, PRODUCTS
from rematch.plan.policies import KEEPS, contexts_of

STORED, CHECKPOINTED, PRODUCTS_KEPT = "stored", "checkpointed", "products kept"
JOINED = "joined"
"""In one segment with the block before it; both are children of an nn.Sequential."""

Contexts = Callable[[], Any]


def known_options() -> dict[str, Contexts | None]:
    """Returns the options by name, each with its `context_fn` for checkpoint(); the first one is not to checkpoint."""
    products = partial(create_selective_checkpoint_contexts, kept_products())
    return {STORED: None, CHECKPOINTED: None, PRODUCTS_KEPT: products}


def kept_products() -> list[Any]:
    """Returns torchtitan's list of operators, without the maximum, which is not a product."""
    return [op for op in (*PRODUCTS, *ATTENTION) if op is not torch.ops.aten.max.default]


def may_join(model: nn.Module, before: str, name: str) -> bool:
    """Returns whether two blocks are neighbours in an nn.Sequential, which hands the output of one to the other."""
    parent, dot, _ = name.rpartition(".")
    sequence = model.get_submodule(parent)
    return type(sequence) is nn.Sequential and (before, name) in pairwise(parent + dot + c for c in sequence._modules)


def joins(model: nn.Module, names: Sequence[str], called: Collection[str]) -> list[bool]:
    """Returns for each block whether it may be in one segment with the block before it: if neither has hooks, which
    would run twice, and their nn.Sequential is `called` in a step."""
    found = [False]
    for before, name in pairwise(names):
        blocks = [model.get_submodule(n) for n in (before, name)]
        parent = name.rpartition(".")[0]
        is_called = parent in called and "forward" not in model.get_submodule(parent).__dict__
        is_hooked = any(block._forward_hooks or block._forward_pre_hooks for block in blocks)
        found.append(is_called and not is_hooked and may_join(model, before, name))
    return found


def in_segments(sequence: nn.Sequential, lengths: Mapping[int, int], input: Any) -> Any:
    """Runs children in turn: from the number of a first one, as many in one segment as `lengths` says."""
    at = 0
    while at < len(sequence):
        end = at + lengths.get(at, 1)
        run = sequence[at:end].forward
        is_segment = at in lengths and torch.is_grad_enabled()
        input = checkpoint(run, input, use_reentrant=False) if is_segment else run(input)
        at = end
    return input


def split(model: nn.Module, choices: Mapping[str, str]) -> tuple[dict[str, str], dict[str, dict[int, int]]]:
    """Returns the choices for blocks that are a segment each, and, by the name of an nn.Sequential, the lengths of
    segments of several blocks by the number of the first. Raises ValueError for blocks that cannot be one segment."""
    singly: dict[str, str] = {}
    lengths: dict[str, dict[int, int]] = {}
    before, first = "", 0
    for name, choice in choices.items():
        if choice == JOINED:
            if choices.get(before) not in (CHECKPOINTED, JOINED) or not may_join(model, before, name):
                raise ValueError(
                    f"[apply] {name} cannot be joined to {before or 'nothing'}: in the order of the choices, the first "
                    "block of a segment is checkpointed, and each other one is the next child of the same nn.Sequential"
                )
            parent, _, child = name.rpartition(".")
            if singly.pop(before, None):
                first = list(model.get_submodule(parent)._modules).index(child) - 1
            of = lengths.setdefault(parent, {})
            of[first] = of.get(first, 1) + 1
        elif choice != STORED:
            singly[name] = choice
        before = name
    return singly, lengths


class Applied:
    """Checkpoints blocks of a model from now on, until remove() is called or a `with` block is left.

    Blocks get another forward; where blocks are joined, their nn.Sequential gets one. Names of parameters stay as they
    are. Without grad mode, as in evaluation, a block runs as it is.
    """

    def __init__(self, model: nn.Module, choices: Mapping[str, str], options: Mapping[str, Contexts | None]) -> None:
        policies = {text: contexts_of(text) for text in set(choices.values()) if text.startswith(KEEPS)}
        options = {**policies, **options}
        unknown = sorted(set(choices.values()) - {*options, JOINED})
        if unknown:
            raise ValueError(f"[apply] a choice is one of {', '.join([*options, JOINED])}; got {', '.join(unknown)}")
        self._blocks: list[nn.Module] = []
        modules = dict(model.named_modules(remove_duplicate=False))
        if missing := [name for name, choice in choices.items() if choice != STORED and name not in modules]:
            raise ValueError(f"[apply] the model has no submodule {missing[0]!r}: the plan was made for another")
        singly, lengths = split(model, choices)
        puts: list[tuple[str, Callable[..., Any]]] = [
            (name, partial(_Checkpointed, contexts=options[choice])) for name, choice in singly.items()
        ]
        puts += [(name, partial(_Segments, lengths=of)) for name, of in lengths.items()]
        for name, put in puts:
            own = modules[name].__dict__.get("forward")
            problem = ""
            if isinstance(own, (_Checkpointed, _Segments)):
                problem = "is checkpointed by a plan already; remove() that one first"
            elif own is not None and name in lengths:
                problem = "has a forward of its own: none of its children can be joined"
            if problem:
                self.remove()
                raise ValueError(f"[apply] {name} {problem}")
            modules[name].forward = put(modules[name].forward)
            self._blocks.append(modules[name])

    def remove(self) -> None:
        """Undoes it: every block runs as before. Attributes that were set on a block since then stay."""
        for block in self._blocks:
            inner = block.__dict__.pop("forward").forward
            if getattr(inner, "__func__", None) is not type(block).forward:
                block.forward = inner
        self._blocks = []

    def __enter__(self) -> "Applied":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()


class _Checkpointed:
    """A forward that checkpoint() runs; it can be copied and pickled with its module."""

    def __init__(self, forward: Callable[..., Any], contexts: Contexts | None) -> None:
        self.forward, self.contexts = forward, contexts

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.forward(*args, **kwargs)
        options: dict[str, Any] = {} if self.contexts is None else {"context_fn": self.contexts}
        return checkpoint(self.forward, *args, use_reentrant=False, **options, **kwargs)


class _Segments:
    """The forward of an nn.Sequential, some of whose children are one segment."""

    def __init__(self, forward: Any, lengths: Mapping[int, int]) -> None:
        self.forward, self.lengths = forward, lengths

    def __call__(self, input: Any) -> Any:
        # The children that it has now.
        return in_segments(self.forward.__self__, self.lengths, input)
