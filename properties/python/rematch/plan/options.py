"""The options for a block, and how a choice is put on a model."""

from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from rematch.frameworks.pytorch.operators import ATTENTION, PRODUCTS
from rematch.plan.policies import KEEPS, contexts_of

STORED, CHECKPOINTED, PRODUCTS_KEPT = "stored", "checkpointed", "products kept"

Contexts = Callable[[], Any]


def known_options() -> dict[str, Contexts | None]:
    """Returns the options by name, each with its `context_fn` for checkpoint(); the first one is not to checkpoint."""
    products = partial(create_selective_checkpoint_contexts, kept_products())
    return {STORED: None, CHECKPOINTED: None, PRODUCTS_KEPT: products}


def kept_products() -> list[Any]:
    """Returns torchtitan's list of operators, without the maximum, which is not a product."""
    return [op for op in (*PRODUCTS, *ATTENTION) if op is not torch.ops.aten.max.default]


class Applied:
    """Checkpoints blocks of a model from now on, until remove() is called or a `with` block is left.

    Names of parameters stay as they are. Without grad mode, as in evaluation, a block runs as it is.
    """

    def __init__(self, model: nn.Module, choices: Mapping[str, str], options: Mapping[str, Contexts | None]) -> None:
        policies = {text: contexts_of(text) for text in set(choices.values()) if text.startswith(KEEPS)}
        options = {**policies, **options}
        unknown = sorted(set(choices.values()) - set(options))
        if unknown:
            raise ValueError(f"[apply] a choice is one of {', '.join(options)}; got {', '.join(unknown)}")
        self._blocks: list[nn.Module] = []
        for name, choice in choices.items():
            if choice == STORED:
                continue
            try:
                block = model.get_submodule(name)
            except AttributeError:
                self.remove()
                raise ValueError(
                    f"[apply] the model has no submodule {name!r}: the plan was made for another"
                ) from None
            if isinstance(block.__dict__.get("forward"), _Checkpointed):
                self.remove()
                raise ValueError(f"[apply] {name} is checkpointed by a plan already; remove() that one first")
            block.forward = _Checkpointed(block.forward, options[choice])
            self._blocks.append(block)

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
