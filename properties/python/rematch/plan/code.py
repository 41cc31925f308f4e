"""Writes a plan as a module that needs PyTorch alone."""

from collections.abc import Mapping
from inspect import getsource
from typing import Any

from rematch.plan.options import CHECKPOINTED, PRODUCTS_KEPT, STORED, kept_products
from rematch.plan.policies import KEEPS, executions_of, keeps

_CODE = '''\
"""{about}. Call apply(model) before training."""

from collections import Counter
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


{keeps}

OPTIONS = {{
{options}}}
BLOCKS = {{
{blocks}}}


def apply(model):
    for name, option in BLOCKS.items():
        block = model.get_submodule(name)
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, **OPTIONS[option])
'''


def code_of(choices: Mapping[str, str], about: str) -> str:
    """Returns the module, with `about` as its first words. Raises ValueError for a policy of the caller's own."""
    used = [option for option in dict.fromkeys(choices.values()) if option != STORED]
    options = "".join(f"    {option!r}: {_keywords(option)},\n" for option in used)
    blocks = "".join(f"    {name!r}: {option!r},\n" for name, option in choices.items() if option != STORED)
    return _CODE.format(about=about, keeps=getsource(keeps), options=options, blocks=blocks)


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
