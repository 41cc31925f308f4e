"""Makes convolutional models narrow whose classes have no argument for it."""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from math import gcd
from typing import Any
from unittest.mock import patch

from torch import nn

_WIDTHS = ("in_channels", "out_channels", "in_features", "out_features", "num_features", "num_channels")
_LAYERS: tuple[type[nn.Module], ...] = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.Linear, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d,
    nn.GroupNorm, nn.LayerNorm,
)  # fmt: skip


@contextmanager
def narrow(factor: int) -> Iterator[None]:
    """Within, layers of PyTorch get 1 / `factor` of their channels, if their number is a multiple of `factor`. Layers
    that fit together before still do, unless a model counts in other units."""
    with ExitStack() as stack:
        for layer in _LAYERS if factor > 1 else ():
            stack.enter_context(patch.object(layer, "__init__", _narrowed(layer.__init__, factor)))
        yield


def _narrowed(make: Any, factor: int) -> Any:
    signature = inspect.signature(make)

    def less(n: Any) -> Any:
        if isinstance(n, (list, tuple)):
            return type(n)(map(less, n))
        return n // factor if isinstance(n, int) and n % factor == 0 else n

    @wraps(make)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs).arguments
        new = {name: less(value) if name in _WIDTHS else value for name, value in given.items()}
        if "normalized_shape" in given:
            new["normalized_shape"] = less(given["normalized_shape"])
        if "groups" in given:
            new["groups"] = gcd(given["groups"], new["in_channels"], new["out_channels"])
            if given["groups"] == given["in_channels"]:
                new["groups"] = new["in_channels"]
        if "num_groups" in given:
            new["num_groups"] = gcd(given["num_groups"], new["num_channels"])
        more = new.pop("kwargs", {})
        make(**new, **more)

    return init
