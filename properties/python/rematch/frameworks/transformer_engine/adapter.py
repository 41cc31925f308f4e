"""Transformer Engine's checkpoint(), in both variants.

The library needs a CUDA device. It has not been run yet."""

from __future__ import annotations

from typing import Any

import torch

from rematch.frameworks.pytorch.adapter import options_of, parser_of
from rematch.frameworks.pytorch.subject import TorchSubject

LACKS = {
    "preserve_rng_off": "random state is always preserved",
    "no_check": "there is no option for the determinism check",
    "selective": "there are no policies",
}


def checkpoint(function: Any, *inputs: Any, use_reentrant: bool) -> Any:
    """Without distributing what is saved over several devices."""
    import transformer_engine.pytorch as engine

    return engine.checkpoint(function, *inputs, use_reentrant=use_reentrant)


def subject(arguments: list[str]) -> TorchSubject:
    """Raises ImportError without the library, and SystemExit without a device."""
    import transformer_engine

    given = parser_of("transformer_engine").parse_args(arguments)
    if not torch.cuda.is_available():
        raise SystemExit("transformer_engine: it needs a CUDA device, and there is none")
    name = f"Transformer Engine {transformer_engine.__version__}"
    return TorchSubject(name, checkpoint, lacks=LACKS, **options_of(given))
