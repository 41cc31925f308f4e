"""Selective checkpointing: policies that keep the results of single ops."""

from collections import Counter
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from rematch.frameworks.pytorch.layers import ops_of
from rematch.frameworks.pytorch.watch import Watch
from rematch.subjects.case import Case, Choice

_ANSWERS = (
    (CheckpointPolicy.PREFER_RECOMPUTE, CheckpointPolicy.MUST_RECOMPUTE, False),
    (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE, True),
)
"""All ways of a policy to say that a result is computed again, and that it is kept. In eager runs
they mean the same; layers take turns."""
_FACTORIES = {torch.ops.aten.empty_like.default, torch.ops.aten.empty.memory_format}
_RRELU = torch.ops.aten.rrelu_with_noise.default
_HOOKS_OPTION = "respect_saved_tensors_hooks"
_HAS_HOOKS_OPTION = _HOOKS_OPTION in signature(checkpoint).parameters


def kept_layers(case: Case, choice: Choice, begin: int, end: int) -> frozenset[int]:
    """The layers among [begin, end) whose results the policy keeps."""
    seen: Counter[str] = Counter()
    kept = set()
    for index in range(begin, end):
        for op in ops_of(case.layers[index], case.protocol.train):
            if any(k.op == op and k.index in (-1, seen[op]) for k in choice.keep):
                kept.add(index)
            seen[op] += 1
    return frozenset(kept)


def is_final(op: Any) -> bool:
    """Whether what the operator makes is a result of the layer that nobody writes to. The result of rrelu is
    one, though its operator also writes its noise."""
    return op is _RRELU or not (op.is_view or op._schema.is_mutable or op in _FACTORIES)


def contexts_for(kept: frozenset[int], watch: Watch, own: bool) -> dict[str, Any]:
    """The option of checkpoint() that keeps what the layers `kept` compute. `own`: checkpoint() is
    PyTorch's."""

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy | bool:
        place = watch.place
        keeps = place is not None and place.layer in kept and is_final(op)
        return _ANSWERS[keeps][place.layer % 3 if place is not None else 0]

    options: dict[str, Any] = {"context_fn": partial(create_selective_checkpoint_contexts, policy)}
    if own and _HAS_HOOKS_OPTION:
        # Hooks around the checkpoint, offloading ones too, shall see what is kept.
        options[_HOOKS_OPTION] = True
    return options
