"""fairscale's checkpoint_wrapper(), a reentrant checkpoint around a module."""

from __future__ import annotations

from functools import partial
from inspect import getsource
from typing import Any

import fairscale
from fairscale.nn import checkpoint_wrapper
from torch import Tensor, nn

from rematch.frameworks.pytorch.adapter import options_of, parser_of
from rematch.frameworks.pytorch.custom import CustomLayer
from rematch.frameworks.pytorch.held import held_by
from rematch.frameworks.pytorch.model import Block
from rematch.frameworks.pytorch.subject import TorchSubject

LACKS = {
    "preserve_rng_off": "random state is always preserved",
    "no_check": "there is no determinism check that could be left out",
    "batch_norm": "instances of nn.BatchNorm are patched, and no function: the layers below",
    "frozen_first_block": "a block trains though its input is frozen; the forecast is PyTorch's",
}

NORMS = (
    CustomLayer("batch_norm_1d", "N C -> N C", "nn.BatchNorm1d(C)"),
    CustomLayer("batch_norm_2d", "N C H W -> N C H W", "nn.BatchNorm2d(C)"),
)


# A module that holds what the function closes over that it calls: fairscale asks parameters whether
# they require grad, and patches BatchNorm.
class Holder(nn.Module):
    def __init__(self, held: list[Any]) -> None:
        super().__init__()
        weights = [part for part in held if isinstance(part, Tensor)]
        self.weights = nn.ParameterList(nn.Parameter(w.detach(), w.requires_grad) for w in weights)
        self.parts = nn.ModuleList(part for part in held if isinstance(part, nn.Module))

    def forward(self, function: Any, *inputs: Tensor) -> Any:
        return function(*inputs)


def checkpoint(block: Block, *inputs: Tensor, use_reentrant: bool, offload: bool = False) -> Any:
    """The segment is wrapped once for each model, and called at each forward."""
    wrapped = block.model.wrapped
    if block.segment not in wrapped:
        wrapped[block.segment] = checkpoint_wrapper(Holder(block.held()), offload)
    return wrapped[block.segment](block, *inputs)


SCRIPT = f"""
from functools import cache
from typing import Any

import torch.nn as nn
from fairscale.nn import checkpoint_wrapper
from torch import Tensor


{getsource(Holder)}

{getsource(held_by)}

@cache
def wrapped(function):
    return checkpoint_wrapper(Holder(held_by(function)), OFFLOAD)


def checkpoint(function, *inputs, use_reentrant):
    return wrapped(function)(function, *inputs)
"""


def subject(arguments: list[str]) -> TorchSubject:
    """fairscale. Raises ImportError where there is none."""
    parser = parser_of("fairscale", ["reentrant"])
    parser.add_argument("--offload", action="store_true", help="with offload_to_cpu=True")
    given = parser.parse_args(arguments)
    options = options_of(given)
    options["layers"] += NORMS
    made = TorchSubject(
        f"fairscale {fairscale.__version__}",
        partial(checkpoint, offload=given.offload),
        imported=SCRIPT.replace("OFFLOAD", str(given.offload)),
        lacks=LACKS,
        **options,
    )
    made.versions["fairscale"] = fairscale.__version__
    return made
