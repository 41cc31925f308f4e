"""Writes a plan as a module that needs PyTorch alone."""

from collections.abc import Mapping
from typing import Any

from rematch.plan.options import CHECKPOINTED, PRODUCTS_KEPT, STORED, kept_products
from rematch.plan.policies import KEEPS, executions_of

_CODE = '''\
"""{about}. Call apply(model) before training."""

from collections import Counter
from functools import partial

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


def keeps(kept):
    """Keeps results of operators in a block: these executions, counted from 0; all of them where it says None."""
    ran = Counter(), Counter()

    def policy(ctx, op, *args, **kwargs):
        number = ran[ctx.is_recompute][op]
        ran[ctx.is_recompute][op] += 1
        is_kept = op in kept and (kept[op] is None or number in kept[op])
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


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
    return _CODE.format(about=about, options=options, blocks=blocks)


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
