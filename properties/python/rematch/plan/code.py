"""Writes a plan as a module that needs PyTorch alone."""

from collections.abc import Mapping
from inspect import getsource
from typing import Any

from torch import nn

from rematch.plan.options import CHECKPOINTED, PRODUCTS_KEPT, in_segments, kept_products, split
from rematch.plan.policies import KEEPS, executions_of, keeps

_CODE = '''\
"""{about}. Call apply(model) before training."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


{keeps}

OPTIONS = {{
{options}}}
BLOCKS = {{
{blocks}}}
SEGMENTS = {{
{segments}}}


def apply(model):
    for name, option in BLOCKS.items():
        block = model.get_submodule(name)
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, **OPTIONS[option])
    for name, lengths in SEGMENTS.items():
        sequence = model.get_submodule(name)
        sequence.forward = partial(in_segments, sequence, lengths)


{in_segments}'''


def code_of(model: nn.Module, choices: Mapping[str, str], about: str) -> str:
    """Returns the module, with `about` as its first words. Raises ValueError for a policy of the caller's own."""
    singly, lengths = split(model, choices)
    options = {option: _keywords(option) for option in singly.values()}
    return _CODE.format(
        about=about,
        keeps=getsource(keeps),
        in_segments=getsource(in_segments),
        options="".join(f"    {option!r}: {keywords},\n" for option, keywords in options.items()),
        blocks="".join(f"    {name!r}: {option!r},\n" for name, option in singly.items()),
        segments="".join(f"    {name!r}: {of},\n" for name, of in lengths.items()),
    )


def _keywords(option: str) -> str:
    kept: Mapping[Any, frozenset[int] | None]
    if option == CHECKPOINTED:
        return "{}"
    if option == PRODUCTS_KEPT:
        kept = dict.fromkeys(kept_products())
    elif option.startswith(KEEPS):
        kept = executions_of(option)
    else:
        raise ValueError(f"[code] {option!r} is a policy of your own, which is not written here")
    parts = [f"torch.ops.{op}: {None if numbers is None else set(numbers)}" for op, numbers in kept.items()]
    return f'{{"context_fn": partial(keeps, {{{", ".join(parts)}}})}}'
